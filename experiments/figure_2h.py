"""Figure 2h: final accuracy against the aggregation interval.

python experiments/figure_2h.py --size small
"""

from show import show

from d2djax.analysis import claims, drawings

if __name__ == "__main__":
    show("2h", ("intervals",), draw=drawings.intervals, claims=claims.intervals)
