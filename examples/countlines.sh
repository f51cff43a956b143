#!/bin/sh
# Counts the lines of a file, a MiB at a time: a handler that is no more than a shell script.
#
# Its job comes as one line of JSON; the path of the file comes as a word as well, so that little has to be read there.

read -r job
file=$1

number() { # what an earlier attempt kept under this name, or 0
    kept=$(printf '%s' "$job" | sed -n "s/.*\"$1\": *\([0-9][0-9]*\).*/\1/p")
    echo "${kept:-0}"
}

blocks=$((($(wc -c < "$file") + 1048575) / 1048576))
block=$(number kept_block)
lines=$(number kept_lines)

while [ "$block" -lt "$blocks" ]; do
    found=$(dd if="$file" bs=1048576 skip="$block" count=1 2> /dev/null | wc -l) || exit 1
    lines=$((lines + found))
    block=$((block + 1))
    printf '{"progress": %de-3, "checkpoint": {"kept_block": %d, "kept_lines": %d}}\n' $((block * 1000 / blocks)) "$block" "$lines"
done

printf '{"result": {"lines": %d}}\n' "$lines"
