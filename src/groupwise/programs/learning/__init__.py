"""A language model learns to write programs: search finds them, the model imitates them, and GRPO goes on from there.

Open `product` first. In the order in which data flows:

    model            the model with its tokenizer, and what it reads and writes
    rollout          which problems come next, groups of programs by the policy, their scores, evaluations
    prior            the policy as the prior of a search; many searches share its batches
    found_programs   what searches found, as rows to learn from
    product          the source of batches, `check` and `build`
"""
