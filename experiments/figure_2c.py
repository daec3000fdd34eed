"""Figure 2c: accuracy on Fashion-MNIST while training, for every way to choose the graph.

python experiments/figure_2c.py --size small
"""

from show import show

from d2djax.analysis import claims, plots

if __name__ == "__main__":
    show("2c", ("fashion_mnist",), draw=plots.accuracy_curves, claims=claims.learning)
