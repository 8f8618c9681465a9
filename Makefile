# Leasehold for C and C++: builds the library, and installs it with its headers, a pkg-config file
# and a CMake package.
#
#   make                               builds libleasehold.so and libleasehold.a in target/c
#   make install PREFIX=/usr/local     also LIBDIR, INCLUDEDIR, PKGCONFIGDIR, CMAKEDIR and DESTDIR
#   make uninstall                     with the same folders: takes away what install put there
#   make clean                         takes away target/c; `cargo clean` what others use too
#   make header                        writes include/leasehold.h anew from the comments in src/capi
#   make check                         looks at a change: formats, lints, types, documentation
#   make dist                          makes the packages of all languages, in dist
#   make dist TARGETS=this             the same for this machine alone, with its own compiler
#
# FEATURES=stores,tls is what the library knows beyond plain Redis; without them it is smaller.
# CARGO="cargo +1.89" or CARGO=/where/it/is names another cargo than the one in PATH.

PREFIX = /usr/local
LIBDIR = $(PREFIX)/lib
INCLUDEDIR = $(PREFIX)/include
PKGCONFIGDIR = $(LIBDIR)/pkgconfig
CMAKEDIR = $(LIBDIR)/cmake/leasehold
# Remembered until `make clean`, so that `sudo make install` installs what `make` has built.
FEATURES = $(shell cat $(BUILD)/features 2>/dev/null || echo stores,tls)

CARGO ?= cargo
OBJCOPY ?= objcopy
INSTALL ?= install

BUILD := target/c
# One folder for all builds of the checkout, as cargo has it. The wheel is built with the same command
# as the library below: the second of the two compiles nothing of it.
CARGO_DIR = $(or $(CARGO_TARGET_DIR),target)
CARGO_OUT = $(CARGO_DIR)$(CARGO_BUILD_TARGET:%=/%)/release

in_manifest = $(shell sed -n 's/^$(1) = "\(.*\)"$$/\1/p' Cargo.toml)
VERSION := $(call in_manifest,version)
RUST := $(call in_manifest,rust-version)
LINK := libleasehold.so
SONAME := $(LINK).$(firstword $(subst ., ,$(VERSION)))
SHARED := $(LINK).$(VERSION)
STATIC := libleasehold.a

all: $(BUILD)/$(SHARED)

# Cargo says which libraries of the system a static link needs.
# The static library is made one object that shows nothing but leasehold_*: else a program that has
# its own SQLite, or another library in Rust, would meet the names of ours. The bitcode that comes
# with Rust's own library goes too: tools with an older LLVM plugin do not get past it.
$(BUILD)/$(SHARED): Makefile Cargo.toml Cargo.lock $(BUILD)/features build.rs $(shell find build src -type f)
	@$(need_rust)
	$(CARGO) rustc --locked --release --lib --features "capi,$(FEATURES)" \
		--target-dir "$(CARGO_DIR)" --crate-type cdylib,staticlib -- \
		--print native-static-libs="$(CARGO_OUT)/native-static-libs"
	cp "$(CARGO_OUT)/$(LINK)" $(BUILD)/$(LINK).new
	cp "$(CARGO_OUT)/native-static-libs" $(BUILD)/native-static-libs
	$(LD) -r -o $(BUILD)/leasehold.o --whole-archive "$(CARGO_OUT)/$(STATIC)"
	$(OBJCOPY) --wildcard --keep-global-symbol='leasehold_*' --strip-debug \
		--remove-section=.llvmbc --remove-section=.llvmcmd $(BUILD)/leasehold.o
	rm -f $(BUILD)/$(STATIC)
	$(AR) rcs $(BUILD)/$(STATIC) $(BUILD)/leasehold.o
	rm $(BUILD)/leasehold.o
	mv $(BUILD)/$(LINK).new $@

$(BUILD)/features: FORCE
	@mkdir -p $(BUILD)
	@echo '$(FEATURES)' | cmp -s - $@ || echo '$(FEATURES)' >$@

define need_rust
command -v $(firstword $(CARGO)) >/dev/null || { \
	echo "cargo is missing: get Rust $(RUST) or later from https://rustup.rs, or say CARGO=/where/it/is." >&2; \
	echo "To install as another user than the one who has it, run 'make' as that one first." >&2; \
	exit 1; }; \
found=$$($(CARGO) --version | cut -d' ' -f2); \
printf '%s\n' $(RUST) "$$found" | sort -VC || { \
	echo "Rust $$found is too old: get $(RUST) or later from https://rustup.rs." >&2; exit 1; }
endef

install: all
	@case "$(PREFIX)" in /*) ;; *) echo "PREFIX must begin with /" >&2; exit 1 ;; esac
	$(INSTALL) -d "$(DESTDIR)$(LIBDIR)" "$(DESTDIR)$(INCLUDEDIR)" \
		"$(DESTDIR)$(PKGCONFIGDIR)" "$(DESTDIR)$(CMAKEDIR)"
	$(INSTALL) -m 644 include/leasehold.h include/leasehold.hpp "$(DESTDIR)$(INCLUDEDIR)"
	$(INSTALL) -m 644 $(BUILD)/$(STATIC) "$(DESTDIR)$(LIBDIR)"
	$(INSTALL) -m 755 $(BUILD)/$(SHARED) "$(DESTDIR)$(LIBDIR)"
	ln -sf $(SHARED) "$(DESTDIR)$(LIBDIR)/$(SONAME)"
	ln -sf $(SHARED) "$(DESTDIR)$(LIBDIR)/$(LINK)"
	@$(call fill,leasehold.pc,$(PKGCONFIGDIR))
	@$(call fill,leaseholdConfig.cmake,$(CMAKEDIR))
	@$(call fill,leaseholdConfigVersion.cmake,$(CMAKEDIR))
	@$(refresh_loader)

# $(call fill,FILE,FOLDER) installs FILE from its template, with paths relative to FOLDER: the tree
# can be moved as a whole.
define fill
echo 'write $(DESTDIR)$(2)/$(1)'; set -e; \
from() { realpath -ms --relative-to="$$1" "$$2"; }; \
prefix=$$(from "$(2)" "$(PREFIX)"); \
case "$(PREFIX)" in /usr) pc_prefix=/usr ;; *) pc_prefix='$${pcfiledir}'/$$prefix ;; esac; \
libdir=$$(from "$(PREFIX)" "$(LIBDIR)"); includedir=$$(from "$(PREFIX)" "$(INCLUDEDIR)"); \
sed -e "s|@PREFIX@|$$prefix|" -e "s|@PC_PREFIX@|$$pc_prefix|" -e "s|@LIBDIR@|$$libdir|" -e "s|@INCLUDEDIR@|$$includedir|" \
	-e 's|@VERSION@|$(VERSION)|' -e 's|@DESCRIPTION@|$(call in_manifest,description)|' \
	-e 's|@SHARED@|$(SHARED)|' -e 's|@SONAME@|$(SONAME)|' -e 's|@STATIC@|$(STATIC)|' \
	-e 's|@STATIC_NEEDS@|$(static_needs)|' bindings/c/$(1).in >"$(DESTDIR)$(2)/$(1)"; \
chmod 644 "$(DESTDIR)$(2)/$(1)"
endef
# The compiler adds these two by itself, in the way that goes with -static or without.
static_needs = $(filter-out -lgcc_s -lc,$(shell cat $(BUILD)/native-static-libs))

# The loader finds a new library in /usr/local/lib only when its cache knows it.
define refresh_loader
if [ -z "$(DESTDIR)" ]; then \
	PATH=$$PATH:/usr/sbin:/sbin; \
	if [ "$$(id -u)" = 0 ]; then ldconfig || true; fi; \
	ldconfig -p 2>/dev/null | grep -qF "$(LIBDIR)/$(SONAME)" || \
		echo "Programs find the library in $(LIBDIR) with LD_LIBRARY_PATH or an rpath."; \
fi
endef

uninstall:
	rm -f "$(DESTDIR)$(INCLUDEDIR)/leasehold.h" "$(DESTDIR)$(INCLUDEDIR)/leasehold.hpp" \
		"$(DESTDIR)$(LIBDIR)/$(STATIC)" "$(DESTDIR)$(LIBDIR)/$(LINK)" \
		"$(DESTDIR)$(LIBDIR)/$(SONAME)" "$(DESTDIR)$(LIBDIR)/$(SONAME)".* \
		"$(DESTDIR)$(PKGCONFIGDIR)/leasehold.pc" "$(DESTDIR)$(CMAKEDIR)"/leaseholdConfig*.cmake
	if [ -d "$(DESTDIR)$(CMAKEDIR)" ]; then rmdir "$(DESTDIR)$(CMAKEDIR)"; fi

header:
	KIT_REWRITE=1 $(CARGO) test --quiet --features capi --test languages abi:

check:
	tests/check

TARGETS = $(foreach libc,gnu musl,x86_64-unknown-linux-$(libc) aarch64-unknown-linux-$(libc))
dist:
	packaging/dist dist $(TARGETS)

clean:
	rm -rf $(BUILD)

FORCE:
.PHONY: all install uninstall header check dist clean FORCE
