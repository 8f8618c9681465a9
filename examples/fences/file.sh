#!/bin/sh
# Replaces a file by standard input, unless a later holder of the lock has already written:
#
#     leasehold run report -- sh -c './report | examples/fences/file.sh /srv/report.html'
#
# The fence is $LEASEHOLD_FENCE, or the second argument; the last one is kept in FILE.fence. Exits with 1
# and changes nothing if it is late, or if FILE.fence has no fence. All writers see one file system, with
# `flock`, which is held on FILE.lock.
set -eu

# By another name, a link's, it would have another lock and another fence.
file=$(readlink -m "$1")
fence=${2:-$LEASEHOLD_FENCE}

# What is longer, `[` may not compare as a number.
is_fence() {
    case $1 in '' | *[!0-9]* | ???????????????????*) return 1 ;; esac
}
is_fence "$fence" || { echo "$0: $fence is no fence" >&2 && exit 64; }

# Reads its input first, so that no other writer waits for that.
new=$(mktemp "$file.XXXXXX")
noted=
trap 'rm -f "$new" "$noted"' EXIT
cat >"$new"

exec 9>>"$file.lock"
flock 9
# `mktemp` lets nobody else read: the file keeps its mode, or gets one by the umask.
chmod '=rw' "$new"
if [ -e "$file" ]; then chmod --reference="$file" "$new"; fi
last=0
if [ -e "$file.fence" ]; then last=$(tail -n 1 "$file.fence"); fi
is_fence "$last" || { echo "$0: $file.fence has no fence, but '$last'" >&2 && exit 1; }
if [ "$fence" -lt "$last" ]; then
    echo "$0: the fence $fence is late: $last was here" >&2
    exit 1
fi
sync "$new"
# The fence first: a writer that is killed in between has written nothing, and its fence counts.
if [ "$fence" != "$last" ]; then
    noted=$(mktemp "$file.XXXXXX")
    echo "$fence" >"$noted"
    chmod '=rw' "$noted"
    sync "$noted"
    mv -T "$noted" "$file.fence"
    sync "$(dirname "$file")"
fi
mv -T "$new" "$file"
sync "$(dirname "$file")"
