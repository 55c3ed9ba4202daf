"""What the package knows of the control products before a run asks for one."""

from groupwise.products import Product

CONTROL = Product(
    name="control",
    summary="a small network learns an environment by groups of episodes",
    implementation="groupwise.control.product",
)
PPO = Product(
    name="ppo",
    summary="the PPO baseline on the same environments",
    implementation="groupwise.control.ppo",
)
