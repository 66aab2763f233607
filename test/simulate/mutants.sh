#!/bin/sh
# mutants.sh - shows that a simulator finds bugs: each patch in its folder mutants/ plants one in a copy of what it
# simulates, and it must find the bug within SEEDS seeds, in which it finds nothing without one: the tests that run
# the simulators themselves have more seeds. Ends with a table of how soon it did.
#
# usage: mutants.sh SOURCE_TREE WORK_FOLDER simulate|membership [SEEDS]      (CC: the compiler; needs patch)
set -eu
source=$1 work=$2 simulator=$3 seeds=${4:-1000}
cc="${CC:-cc} -std=c17 -D_GNU_SOURCE -DHVD_VERSION=\"0\" -O1 -g0 -I$source/include -I$source/test -I$work/src"
case $simulator in
simulate) files="src/engine/turns.c src/coordinate/*.c" limits="--ranks 100" ;;
membership) files="src/membership/*.c" limits="" ;;
esac

rm -rf "$work"
mkdir -p "$work/objects" "$work/base" "$work/test"
cp -R "$source/src" "$work"
cp -R "$source/test/$simulator" "$work/test"
for file in "$work"/src/base/*.c; do
    $cc -c "$file" -o "$work/base/$(basename "$file" .c).o"
done
ar rc "$work/base.a" "$work"/base/*.o # a link takes from it only what is called
for file in $(cd "$work" && echo $files test/"$simulator"/*.c); do
    $cc -c "$work/$file" -o "$work/objects/$(echo "$file" | tr / .).o"
done

# The row of the table: the seeds it took, counted from 1, and what the violation said.
row() {
    sed -n 's/^VIOLATION in seed \([0-9]*\) at time [0-9.]*: \(.*\)/\1 \2/p' "$work/$1.log" |
        while read -r seed text; do
            printf '| %s | %d | %s |\n' "$1" $((seed + 1)) "$(printf %s "$text" | cut -c1-90)"
        done
}

survivors=0
for mutant in "$source/test/$simulator"/mutants/*.patch; do
    name=$(basename "$mutant" .patch)
    file=$(sed -n 's|^+++ b/||p' "$mutant")
    object="$work/objects/$(echo "$file" | tr / .).o"
    cp "$source/$file" "$work/$file"
    (cd "$work" && patch -s -p1 --fuzz=2 <"$mutant") || {
        echo "FAILED: $name does not apply any more; plant the bug anew"
        exit 1
    }
    cp "$object" "$object.sound"
    $cc -c "$work/$file" -o "$object"
    $cc "$work"/objects/*.o "$work/base.a" -lm -o "$work/$name"
    if (ulimit -t 60 && exec "$work/$name" --seeds "$seeds" $limits) >"$work/$name.log" 2>&1; then
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
