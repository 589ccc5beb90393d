#!/bin/sh
# Minimise Rosenbrock's function by gradient descent with momentum, in awk. A program in any language
# is tuned by lines of JSON in the file that TUNER_REPORT names; without it they are printed:
#
#   sh examples/awk_descent.sh --lr 0.001 --momentum 0.9
#
# This searches for the best step size and momentum, within seconds:
#
#   tuner run --name descent -n 40 -p 'lr=loguniform(1e-5,1e-2)' -p 'momentum=uniform(0,0.99)' \
#       --metric loss --mode min --scheduler asha --max-t 81 -- sh examples/awk_descent.sh {args}

set -eu
lr=0.001 momentum=0
while [ $# -gt 0 ]; do
    case $1 in
    --lr) lr=$2 ;;
    --momentum) momentum=$2 ;;
    *) echo "unknown option $1; give --lr or --momentum" >&2; exit 2 ;;
    esac
    shift 2
done

awk -v lr="$lr" -v momentum="$momentum" -v report="${TUNER_REPORT:-/dev/stdout}" '
BEGIN {
    x = -1; y = 2
    for (step = 1; step <= 81; step++) {
        for (i = 0; i < 10; i++) {
            dx = momentum * dx - lr * (-2 * (1 - x) - 400 * x * (y - x * x))
            dy = momentum * dy - lr * 200 * (y - x * x)
            x += dx; y += dy
            if (x * x > 1e6) { print "x leaves the plane; lr is too large" > "/dev/stderr"; exit 1 }
        }
        loss = (1 - x) ^ 2 + 100 * (y - x * x) ^ 2
        printf "{\"step\": %d, \"loss\": %.6g}\n", step, loss >> report
        fflush(report)  # or the results would come at the end, all at once
    }
}'
