/** The laboratory's mathematics in one file of the bundle, so that tests can call what the page calls. */
export * from "./advantages";
export * from "./network";
export * from "./policy";
export * from "./processes";
export * from "./random";
export * from "./routing";
export * from "./surgery";
export * from "./surrogates";
export * as byHand from "../experiments/by_hand";
export * as brokenRun from "../experiments/broken_run";
export * as pitfalls from "../experiments/pitfalls";
export * as baselines from "../experiments/baselines";
export * as conflicts from "../experiments/conflicts";
export * as router from "../experiments/router";
export * as worlds from "../experiments/worlds";
