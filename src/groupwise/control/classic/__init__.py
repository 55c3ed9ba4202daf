"""Gymnasium's classic control, vectorised: many copies of one environment step in a few NumPy calls.

state_environment   the base: N copies of a small state, their clock and their ends; open it first
cartpole            CartPole-v1, bit for bit, tuned further and so without the base
pendulums           Pendulum-v1 and Acrobot-v1
mountain_car        MountainCar-v0 and MountainCarContinuous-v0
"""
