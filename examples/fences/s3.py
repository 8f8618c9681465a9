"""Writes an object unless a later holder of the lock was here, on S3 and what has its conditional
writes."""

from typing import Any

from botocore.exceptions import ClientError

import leasehold


def put(s3: Any, bucket: str, key: str, body: bytes, fence: int) -> None:
    """Puts the object, with the fence in its metadata; `s3` is a client of boto3.

    Fails with `leasehold.Lost` where the object has a larger fence. Between looking and writing
    somebody else may write: the condition says so, and it is looked at again.
    """
    while True:
        try:
            found = s3.head_object(Bucket=bucket, Key=key)
            last = int(found["Metadata"].get("fence", 0))
            if fence < last:
                raise leasehold.Lost(f"the fence {fence} is late: {last} was here")
            unchanged = {"IfMatch": found["ETag"]}
        except ClientError as error:
            if error.response["Error"]["Code"] not in ("404", "NoSuchKey"):
                raise
            unchanged = {"IfNoneMatch": "*"}
        try:
            metadata = {"fence": str(fence)}
            s3.put_object(Bucket=bucket, Key=key, Body=body, Metadata=metadata, **unchanged)
            return
        except ClientError as error:
            if error.response["Error"]["Code"] not in (
                "PreconditionFailed",
                "ConditionalRequestConflict",
                "NoSuchKey",
            ):
                raise
