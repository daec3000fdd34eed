"""Figure 2b: accuracy on CIFAR-10 while training, for every way to choose the graph.

python experiments/figure_2b.py --size small
"""

from show import show

from d2djax.analysis import claims, plots

if __name__ == "__main__":
    show("2b", ("cifar10",), draw=plots.accuracy_curves, claims=claims.learning)
