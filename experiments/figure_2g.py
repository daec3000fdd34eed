"""Figure 2g: success of the links and points between clusters, while the policies learn.

python experiments/figure_2g.py --size small
"""

from show import show

from d2djax.analysis import claims, drawings

if __name__ == "__main__":
    show("2g", ("graphs",), draw=drawings.reliability, claims=claims.reliability)
