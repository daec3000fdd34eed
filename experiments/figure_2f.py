"""Figure 2f: energy of the exchange and of the uploads until a benchmark is reached.

python experiments/figure_2f.py --size small
"""

from show import show

from d2djax.analysis import claims, drawings

if __name__ == "__main__":
    show("2f", ("radioml", "cifar10", "fashion_mnist"), draw=drawings.energy, claims=claims.energy)
