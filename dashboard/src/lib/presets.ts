/** Runs you can start with one click: small enough for a laptop, large enough to see them learn. */
export type Preset = {
  id: string;
  title: string;
  says: string;
  takes: string;
  kind: "prompts" | "config";
  steps: number;
  /** The product whose runs this one should start from. */
  begins?: string;
  config?: Record<string, Record<string, unknown>>;
  prompts?: string[];
};

export const PRESETS: Preset[] = [
  {
    id: "cartpole",
    title: "Balance a pole",
    says: "Control: eight episodes from the same start form a group. No critic; the reward rises from 20 towards 500.",
    takes: "about a minute",
    kind: "config",
    steps: 30,
    config: {
      task: { product: "control", environment: "CartPole-v1" },
      rollout: { num_generations: 8, tasks_per_step: 4 },
      advantage: { estimator: "group_rtg", advantage_scale: "batch_std", gamma: 0.99 },
      optim: {
        learning_rate: 0.001, adam_epsilon: 1e-5, lr_scheduler_type: "linear", warmup_ratio: 0, num_epochs: 8, kl_stop: 0.03,
        max_grad_norm: 0.5, per_device_train_batch_size: 512, gradient_accumulation_steps: 1,
      },
      run: { threads: 1, eval_steps: 5, eval_episodes: 20, save_steps: 10 },
    },
  },
  {
    id: "sums-by-example",
    title: "Sums, by example",
    says: "A warm start: a language model with 0.9 million weights, made from scratch, is trained on correct answers until it gets some right.",
    takes: "about a minute",
    kind: "config",
    steps: 300,
    config: {
      task: { product: "warm-start", environment: "column_addition" },
      rollout: { tasks_per_step: 64 },
      sampling: { max_new_tokens: 6 },
      optim: {
        learning_rate: 0.001, adam_beta2: 0.99, lr_scheduler_type: "constant", warmup_ratio: 0.02,
        per_device_train_batch_size: 64, gradient_accumulation_steps: 1,
      },
      training: { target_reward: 0.45 },
      policy: { model_name: "tiny" },
      run: { threads: 1, eval_steps: 10, eval_episodes: 100, eval_seed: 2_000_000, save_steps: 50, group_log_steps: 0 },
    },
  },
  {
    id: "sums",
    title: "Sums, by trying",
    says: "Language: GRPO continues from the warm start. Four answers to each sum form a group, and the model learns from the better ones.",
    takes: "a few minutes",
    kind: "config",
    steps: 150,
    begins: "warm-start",
    config: {
      task: { product: "language", environment: "column_addition" },
      rollout: { num_generations: 4, tasks_per_step: 64 },
      sampling: { max_new_tokens: 6 },
      optim: {
        learning_rate: 0.0002, adam_beta2: 0.99, lr_scheduler_type: "constant", warmup_ratio: 0,
        per_device_train_batch_size: 256, gradient_accumulation_steps: 1,
      },
      run: { threads: 1, eval_steps: 10, eval_episodes: 100, save_steps: 50 },
    },
  },
  {
    id: "customer-service",
    title: "Answer customers",
    says: "Your prompts, the tiny model and the customer-service reward. Chat with the result afterwards.",
    takes: "about a minute",
    kind: "prompts",
    steps: 10,
    prompts: ["Hello", "How are you?", "Where is my parcel?", "I was charged twice.", "I want a refund."],
  },
  {
    id: "code",
    title: "Write programs",
    says: "Code: a small language model, made from scratch, learns to write programs: first the syntax, by imitation; then what they must do, by search and by trying.",
    takes: "about a minute",
    kind: "config",
    steps: 140,
    config: {
      task: {
        product: "code", environment: "programs",
        options: {
          families: "word_problems,transformations,tables", warm_steps: 60, search_every: 20, search_problems: 40, search_budget: 16,
          first_search: 8,
        },
      },
      rollout: { num_generations: 8, tasks_per_step: 4 },
      sampling: { max_new_tokens: 48 },
      optim: {
        learning_rate: 0.001, adam_beta2: 0.99, lr_scheduler_type: "linear", warmup_ratio: 0, per_device_train_batch_size: 256,
        gradient_accumulation_steps: 1,
      },
      policy: { model_name: "tiny" },
      run: { threads: 1, eval_steps: 20, eval_episodes: 60, save_steps: 70 },
    },
  },
  {
    id: "designer",
    title: "Design workflows",
    says: "Designer: a policy that draws workflow graphs, trained on made-up requirements.",
    takes: "a few minutes",
    kind: "config",
    steps: 60,
    config: {
      task: { product: "designer", environment: "worlds", options: { edit_share: 0.25 } },
      rollout: { num_generations: 16, tasks_per_step: 4 },
      generation: { epsilon_greedy: 0, exploration_share: 0 },
      advantage: { estimator: "outcome", advantage_scale: "group_std" },
      loss: { loss_type: "dapo", entropy_coef: 0.003 },
      optim: {
        learning_rate: 0.002, lr_scheduler_type: "cosine", warmup_ratio: 0.02, per_device_train_batch_size: 64,
        gradient_accumulation_steps: 1, num_epochs: 1, max_grad_norm: 1,
      },
      run: { threads: 1, eval_steps: 10, eval_episodes: 10, save_steps: 20 },
    },
  },
];
