/**
 * A tiny training run with eleven switches, one for each fault: the same world, seed and settings, right or broken.
 *
 * The world: five questions, answered with three words out of four. The judge's marks lie on a scale of their own for
 * each question (0 to 1, 10 to 14, −8 to −4 …), so they are comparable only within a question. The fifth question is
 * attempted once per step, all others eight times. Answers are sampled by a policy three updates old, as they are in
 * asynchronous training; the scorer of the third question crashes on answers with the word "?"; and one judge in three returns one score too few.
 */
import { deviation, groupAdvantages, mean } from "../mathematics/advantages";
import { addEntropyGradient, addLogpGradient, divergence, entropy, softmax } from "../mathematics/policy";
import { Random } from "../mathematics/random";
import { clamp, clippedSlope, importanceRatio, isClipped } from "../mathematics/surrogates";

export const FAULTS = [
  "clip_never_acts", "advantage_clipped", "entropy_added", "tokens_misaligned", "single_keeps_reward", "advantages_after_shuffle",
  "ratio_to_itself", "other_std", "crash_scores_zero", "scores_padded", "scores_rescaled",
] as const;
export type Fault = (typeof FAULTS)[number];

export const [QUESTIONS, WORDS, LENGTH] = [5, 4, 3];
/** The lowest mark of each question, and how much a right answer adds. */
export const SCALES: readonly (readonly [number, number])[] = [[0, 1], [10, 4], [-8, 4], [0, 2], [2, 1]];
export const CRASHES = 2; // the question whose scorer crashes …
export const CRASH_WORD = 3; // … on answers with this word
export const SINGLE = 4; // the question attempted once per step

/**
 * rate, passes, clip, entropy: how the policy is updated. group: attempts per question. stale: how many updates old the
 * sampling policy is. search: the share of words that a search proposes instead of the policy. short: how often a judge
 * returns one score too few. noise: deviation of the judge's opinion of an answer, in right answers. moves: the step
 * from which other answers are right.
 */
export const SETTINGS = {
  steps: 60, rate: 0.5, passes: 8, clip: 0.2, entropy: 0.02, group: 8, stale: 0, search: 0, short: 0, shards: 4, noise: 0.25, moves: Infinity,
};
export type Settings = typeof SETTINGS;

/** One number per step for every curve. */
export type BrokenRun = {
  /** The chance of a right word, averaged over the questions that have a group; exact, not sampled. */
  score: number[];
  /** The same for each question. */
  byQuestion: number[][];
  /** Entropy of the policy in nats per word, over the questions that have a group. */
  entropy: number[];
  /** The share of tokens that were still pushed although their ratio had left 1 ± ε. */
  beyond: number[];
  /** The largest change of an attempt's chances within a step, as a factor. */
  largest: number[];
  /** The chance that an answer to the third question crashes its scorer. */
  crashes: number[];
  /** How far the policy moved on the question attempted once: KL from the start in nats per word. */
  single: number[];
  /** The mean size of the advantages that are not 0. */
  size: number[];
  /** The share of attempts whose score is not their own. */
  wrong: number[];
  /** The score that one and the same answer to the first question is given. */
  same: number[];
};

type Attempt = { question: number; words: number[]; behavior: number[]; quality: number; score: number };
type Broken = ReadonlySet<Fault>;
const RIGHT = [[0, 1, 2], [2, 0, 1], [1, 2, 0], [2, 2, 1], [0, 0, 1]];
/** The right words of a question; other ones once the world has moved. */
const rightOf = (question: number, moved: boolean): number[] => RIGHT[question]!.map((word) => (moved ? (word + 1) % CRASH_WORD : word));

const newPolicy = (): number[][][] => Array.from({ length: QUESTIONS }, () => Array.from({ length: LENGTH }, () => new Array<number>(WORDS).fill(0)));
const chancesOf = (policy: number[][][]): number[][][] => policy.map((rows) => rows.map(softmax));

/** Every question answered by its group, from the policy that sampled. */
function sampled(old: number[][][], settings: Settings, moved: boolean, random: Random): Attempt[] {
  return old.flatMap((rows, question) => {
    const right = rightOf(question, moved);
    // The search likes the word after the right one, which is half right.
    const drawn = rows.map((row, t) => row.map((chance, word) => (1 - settings.search) * chance + settings.search * Number(word === (right[t]! + 1) % CRASH_WORD)));
    return Array.from({ length: question === SINGLE ? 1 : settings.group }, () => {
      const words = drawn.map((chances) => random.pick(chances));
      const worth = words.map((word, t) => (word === right[t] ? 1 : word === (right[t]! + 1) % CRASH_WORD ? 0.5 : 0));
      const behavior = words.map((word, t) => Math.log(drawn[t]![word]!));
      return { question, words, behavior, quality: mean(worth) + settings.noise * random.normal(), score: NaN };
    });
  });
}

/** Marks, NaN where there is none. Returns the share of attempts whose score is not their own. */
function scored(attempts: Attempt[], settings: Settings, broken: Broken, random: Random): number {
  let wrong = 0;
  // Z-scored inside the batch, or on the question's own fixed scale.
  const [middle, spread] = [mean(attempts.map((one) => one.quality)), deviation(attempts.map((one) => one.quality))];
  for (const one of attempts) {
    const [lowest, range] = SCALES[one.question]!;
    one.score = lowest + range * (broken.has("scores_rescaled") ? (one.quality - middle) / spread : one.quality);
    if (one.question === CRASHES && one.words.includes(CRASH_WORD)) one.score = broken.has("crash_scores_zero") ? 0 : NaN;
    wrong += Number(one.score === 0);
  }
  for (let question = 0; question < QUESTIONS; question++) {
    const group = attempts.filter((one) => one.question === question);
    const [isShort, lost] = [random.next() < settings.short, random.below(group.length)];
    // Asked again, the judge returns all scores; padded, those behind the gap move up and the last one is 0.
    if (!isShort || !broken.has("scores_padded") || group.length < 2) continue;
    const told = group.map((one) => one.score).filter((_, at) => at !== lost);
    group.forEach((one, at) => (one.score = told[at] ?? 0));
    wrong += group.length - lost;
  }
  return wrong / attempts.length;
}

function advantagesOf(attempts: readonly Attempt[], settings: Settings, broken: Broken, random: Random): number[] {
  const scores = attempts.map((one) => one.score);
  const std = broken.has("other_std") ? "sample" : "population";
  let found = groupAdvantages(scores, attempts.map((one) => one.question), { std });
  if (broken.has("advantages_after_shuffle")) {
    const order = random.order(attempts.length);
    const shard = new Array<number>(attempts.length);
    order.forEach((at, place) => (shard[at] = place % settings.shards));
    found = groupAdvantages(scores, shard, { std });
  }
  if (broken.has("single_keeps_reward")) found = found.map((value, at) => (attempts[at]!.question === SINGLE ? scores[at]! : value));
  if (broken.has("advantage_clipped")) found = found.map((value) => clamp(value, -settings.clip, settings.clip));
  return found;
}

/** One pass over the batch. Returns how many tokens were pushed beyond the clip, and the largest ratio or its inverse. */
function update(policy: number[][][], attempts: readonly Attempt[], advantages: readonly number[], settings: Settings, broken: Broken): { beyond: number; largest: number } {
  const { clip, rate, group } = settings;
  const chances = chancesOf(policy);
  const logps = chances.map((rows) => rows.map((row) => row.map(Math.log)));
  const gradient = newPolicy();
  const learns = new Array<boolean>(QUESTIONS).fill(false);
  const unclipped = broken.has("clip_never_acts") || broken.has("advantage_clipped");
  const [misaligned, itself] = [broken.has("tokens_misaligned"), broken.has("ratio_to_itself")];
  let [beyond, largest] = [0, 1];
  for (let at = 0; at < attempts.length; at++) {
    const [{ question, words, behavior }, advantage] = [attempts[at]!, advantages[at]!];
    if (advantage === 0) continue;
    learns[question] = true;
    for (let t = 0; t < LENGTH; t++) {
      const logp = logps[question]![t]![words[t]!]!;
      const ratio = importanceRatio(logp, itself ? logp : behavior[t]!);
      const slope = unclipped ? -ratio * advantage : clippedSlope(ratio, advantage, clip);
      if (slope !== 0 && isClipped(ratio, advantage, clip)) beyond += 1;
      largest = Math.max(largest, ratio, 1 / ratio);
      // Logits at t − 1 predict word t; misaligned, word t is credited to the logits of word t + 1.
      const place = misaligned ? (t + 1) % LENGTH : t;
      addLogpGradient(gradient[question]![place]!, chances[question]![place]!, words[t]!, slope / (question === SINGLE ? 1 : group));
    }
  }
  // A bonus is subtracted from the loss, for groups that learn something.
  const bonus = broken.has("entropy_added") ? settings.entropy : -settings.entropy;
  policy.forEach((rows, question) => rows.forEach((logits, t) => {
    const slopes = gradient[question]![t]!;
    if (learns[question]) addEntropyGradient(slopes, chances[question]![t]!, bonus);
    for (let v = 0; v < WORDS; v++) logits[v]! -= rate * slopes[v]!;
  }));
  return { beyond: beyond / attempts.length / LENGTH, largest };
}

/** The run while it grows: the same object after every step. */
export function* brokenSteps(faults: Iterable<Fault>, seed: number, choices: Partial<Settings> = {}): Generator<BrokenRun> {
  const [broken, settings]: [Broken, Settings] = [new Set(faults), { ...SETTINGS, ...choices }];
  const [random, judge] = [new Random(seed), new Random(seed + 1000)];
  const policy = newPolicy();
  const past: number[][][][] = [];
  const run: BrokenRun = { score: [], byQuestion: [], entropy: [], beyond: [], largest: [], crashes: [], single: [], size: [], wrong: [], same: [] };
  for (let step = 0; step < settings.steps; step++) {
    const now = chancesOf(policy);
    const moved = step >= settings.moves;
    measure(run, now, moved);
    past.push(now);
    const attempts = sampled(past[Math.max(0, step - settings.stale)]!, settings, moved, random);
    run.wrong.push(scored(attempts, settings, broken, judge));
    const qualities = attempts.map((one) => one.quality);
    run.same.push(broken.has("scores_rescaled") ? (0.5 - mean(qualities)) / deviation(qualities) : 0.5);
    const advantages = advantagesOf(attempts, settings, broken, judge);
    run.size.push(mean(advantages.filter((value, at) => value !== 0 && attempts[at]!.question !== SINGLE).map(Math.abs)));
    let [beyond, largest] = [0, 1];
    for (let pass = 0; pass < settings.passes; pass++) {
      const found = update(policy, attempts, advantages, settings, broken);
      beyond += found.beyond / settings.passes;
      largest = Math.max(largest, found.largest);
    }
    run.beyond.push(beyond);
    run.largest.push(largest);
    yield run;
  }
}

export const brokenRun = (...given: Parameters<typeof brokenSteps>): BrokenRun => [...brokenSteps(...given)].at(-1)!;

function measure(run: BrokenRun, now: number[][][], moved: boolean): void {
  const shares = now.map((rows, question) => mean(rows.map((row, t) => row[rightOf(question, moved)[t]!]!)));
  const grouped = now.filter((_, question) => question !== SINGLE);
  const uniform = new Array<number>(WORDS).fill(1 / WORDS);
  run.byQuestion.push(shares);
  run.score.push(mean(shares.filter((_, question) => question !== SINGLE)));
  run.entropy.push(mean(grouped.flatMap((rows) => rows.map(entropy))));
  run.crashes.push(1 - now[CRASHES]!.reduce((chance, row) => chance * (1 - row[CRASH_WORD]!), 1));
  run.single.push(mean(now[SINGLE]!.map((row) => divergence(row, uniform))));
}
