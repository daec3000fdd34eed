"""Figure 2d: accuracy while training with FedProx and with FedSGD.

python experiments/figure_2d.py --size small
"""

from show import show

from d2djax.analysis import claims, drawings

if __name__ == "__main__":
    show("2d", ("schemes",), draw=drawings.schemes, claims=claims.learning)
