# The command in an image of its own: for checks and one-off jobs, and to copy it into other images.
# `make dist` comes first. docs/how-to/containers-and-kubernetes.md says how to build and use it.

# Runs on the machine that builds, so that an image for another processor needs no emulator.
FROM --platform=$BUILDPLATFORM debian:bookworm-slim AS root
ARG TARGETARCH
COPY packaging/image /packaging/
COPY dist/leasehold_*_${TARGETARCH}.deb /packages/
RUN apt-get update && /packaging/image /packages/*.deb /image

FROM scratch
LABEL org.opencontainers.image.title="leasehold" \
    org.opencontainers.image.source="https://github.com/leasehold/leasehold" \
    org.opencontainers.image.licenses="MIT OR Apache-2.0"
COPY --from=root /image /
# Without a URL, each container would keep its locks in a file of its own.
ENV LEASEHOLD_REQUIRE_URL=1
USER 65532:65532
ENTRYPOINT ["/usr/bin/leasehold"]
CMD ["--help"]
