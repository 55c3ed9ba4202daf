"""Names and signatures of the documents Groupwise grew from: thin faces over the products, for code written to them.

    trainer                `GRPOTrainer`, `MultiTurnGRPOTrainer` and `train` for agents
    trl_bridge             the same training handed to TRL's trainer
    language               `TrajectoryDataset`, with its prompt template, and `ValueFunction`
    control                `GRPO(...).update(rollouts)` for Gymnasium
    comparison             `GRPOvsPPOAnalyzer`
    core                   `compute_grpo_advantages`, `compute_grpo_loss`, and group advantages in JAX

docs/migration.md maps every name of the documents to these and to the rest of the package.
"""
