"""Writes an object unless a later holder of the lock has already written. It works on S3 and on stores
with the same conditional writes."""

import re
from contextlib import closing
from typing import Any

from botocore.exceptions import ClientError

import leasehold_lock as leasehold

_LINE = re.compile(rb"\Afence (\d+)\n")


def put(s3: Any, bucket: str, key: str, body: bytes, fence: int) -> None:
    """Puts the object, with the fence as its first line; `s3` is a client of boto3.

    Fails with `leasehold.Lost` where the object has a larger fence. Between looking and writing
    somebody else may write: the condition says so, and it is looked at again. The condition is an
    ETag, which mostly is a digest of the body alone: it does not see metadata, so the fence is in
    the body. All writers come here, and none deletes: an object that is gone has forgotten its
    fence, so put an empty one instead.
    """
    while True:
        try:
            found = s3.get_object(Bucket=bucket, Key=key)
            with closing(found["Body"]) as stream:
                line = _LINE.match(stream.read(32))
            if line and fence < int(line[1]):
                raise leasehold.Lost(f"the fence {fence} is late: {int(line[1])} was here")
            unchanged = {"IfMatch": found["ETag"]}
        except ClientError as error:
            if error.response["Error"]["Code"] not in ("404", "NoSuchKey"):
                raise
            unchanged = {"IfNoneMatch": "*"}
        try:
            s3.put_object(Bucket=bucket, Key=key, Body=b"fence %d\n" % fence + body, **unchanged)
            return
        except ClientError as error:
            if error.response["Error"]["Code"] not in (
                "PreconditionFailed",
                "ConditionalRequestConflict",
                "NoSuchKey",
            ):
                raise


def get(s3: Any, bucket: str, key: str) -> bytes:
    """What `put` was given."""
    return _LINE.sub(b"", s3.get_object(Bucket=bucket, Key=key)["Body"].read())
