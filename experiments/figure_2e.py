"""Figure 2e: final accuracy against the number of stragglers.

python experiments/figure_2e.py --size small
"""

from show import show

from d2djax.analysis import claims, drawings

if __name__ == "__main__":
    show("2e", ("stragglers",), draw=drawings.stragglers, claims=claims.stragglers)
