#!/bin/sh
# mutants.sh - shows that the simulator finds bugs: each patch in mutants/ plants one in a copy of the
# coordinator, and the simulator must find it within SEEDS seeds. Ends with a table of how soon it did.
#
# usage: mutants.sh SOURCE_TREE WORK_FOLDER [SEEDS]      (CC: the compiler; needs patch)
set -eu
source=$1 work=$2 seeds=${3:-1000}
cc="${CC:-cc} -std=c17 -D_GNU_SOURCE -DHVD_VERSION=\"0\" -O1 -g0 -I$source/include -I$source/test -I$work/src"

rm -rf "$work"
mkdir -p "$work/objects"
cp -R "$source/src" "$source/test/simulate" "$work"
mkdir "$work/base"
for file in "$work"/src/base/*.c; do
    $cc -c "$file" -o "$work/base/$(basename "$file" .c).o"
done
ar rc "$work/base.a" "$work"/base/*.o # a link takes from it only what the coordinator calls
for file in "$work"/src/engine/turns.c "$work"/src/coordinate/*.c "$work"/simulate/*.c; do
    $cc -c "$file" -o "$work/objects/$(basename "$file" .c).o"
done
$cc "$work"/objects/*.o "$work/base.a" -lm -o "$work/sound"
"$work/sound" --seeds "$seeds" --ranks 100 >"$work/sound.log" || {
    cat "$work/sound.log"
    echo "FAILED: without any mutant the simulator finds a violation"
    exit 1
}

# The row of the table: the seeds it took, counted from 1, and what the violation said.
row() {
    sed -n 's/^VIOLATION in seed \([0-9]*\) at time [0-9]*: \(.*\)/\1 \2/p' "$work/$1.log" |
        while read -r seed text; do
            printf '| %s | %d | %s |\n' "$1" $((seed + 1)) "$(printf %s "$text" | cut -c1-90)"
        done
}

survivors=0
for mutant in "$source"/test/simulate/mutants/*.patch; do
    name=$(basename "$mutant" .patch)
    file=$(sed -n 's|^+++ b/||p' "$mutant")
    object="$work/objects/$(basename "$file" .c).o"
    cp "$source/$file" "$work/$file"
    (cd "$work" && patch -s -p1 --fuzz=2 <"$mutant") || {
        echo "FAILED: $name does not apply any more; plant the bug anew"
        exit 1
    }
    cp "$object" "$object.sound"
    $cc -c "$work/$file" -o "$object"
    $cc "$work"/objects/*.o "$work/base.a" -lm -o "$work/$name"
    if (ulimit -t 60 && exec "$work/$name" --seeds "$seeds" --ranks 100) >"$work/$name.log" 2>&1; then
        verdict=FAILED
        echo "$name survived $seeds seeds"
    elif grep -q '^VIOLATION' "$work/$name.log"; then
        verdict="    OK"
        row "$name" >>"$work/table"
    else
        verdict=FAILED
        echo "$name ended without a violation; see $work/$name.log"
    fi
    echo "[ $verdict ] $name" # as cmocka does, so that each counts as a test
    test "$verdict" != FAILED || survivors=$((survivors + 1))
    cp "$source/$file" "$work/$file"
    mv "$object.sound" "$object"
done
printf '\n| mutant | seeds | found by |\n|---|---|---|\n'
cat "$work/table"
test "$survivors" -eq 0
