// Made from the service's OpenAPI document by `npm run types`; do not edit.

export type paths = Record<string, never>;
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /**
         * Arm
         * @description Runs that differ in nothing but their seed.
         * @example {
         *       "name": "…",
         *       "runs": [
         *         "cart-7"
         *       ]
         *     }
         */
        Arm: {
            /** Name */
            name: string;
            /** Runs */
            runs: string[];
        };
        /**
         * AssignEdit
         * @description Have another pool do an activity.
         * @example {
         *       "do": "assign",
         *       "activity": "…",
         *       "pool": "…"
         *     }
         */
        AssignEdit: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            do: "assign";
            /** Activity */
            activity: string;
            /** Pool */
            pool: string;
        };
        /**
         * AttemptView
         * @example {
         *       "trajectory_id": "g7/m3",
         *       "total": 30,
         *       "parts": {},
         *       "flags": [
         *         "…"
         *       ],
         *       "advantage": 0.5,
         *       "length": 1,
         *       "end": "…",
         *       "failure": "…",
         *       "version": 1,
         *       "text": "42",
         *       "reasoning": "…"
         *     }
         */
        AttemptView: {
            /** Trajectory Id */
            trajectory_id: string;
            /**
             * Total
             * @description The score; null if the attempt failed.
             */
            total: number | null;
            /** Parts */
            parts: {
                [key: string]: number | null;
            };
            /** Flags */
            flags: string[];
            /** Advantage */
            advantage: number;
            /** Length */
            length: number;
            /** End */
            end: string;
            /** Failure */
            failure: string;
            /** Version */
            version: number;
            /** Text */
            text: string;
            /**
             * Reasoning
             * @description What the model thought before it said `text`; empty if it did not.
             */
            reasoning: string;
        };
        /**
         * CallView
         * @description A tool call and its result.
         * @example {
         *       "name": "…",
         *       "arguments": {},
         *       "outcome": "…",
         *       "content": "…",
         *       "seconds": 0.5,
         *       "text": "42"
         *     }
         */
        CallView: {
            /** Name */
            name: string;
            /** Arguments */
            arguments: {
                [key: string]: unknown;
            };
            /** Outcome */
            outcome: string;
            /** Content */
            content: string;
            /** Seconds */
            seconds: number;
            /**
             * Text
             * @default
             */
            text: string;
        };
        /**
         * ChanceEdit
         * @description Change one of the probabilities that the answer lists as `chances`.
         * @example {
         *       "do": "chance",
         *       "of": "…",
         *       "value": 0.5
         *     }
         */
        ChanceEdit: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            do: "chance";
            /** Of */
            of: string;
            /** Value */
            value: number;
        };
        /**
         * ChatAnswer
         * @example {
         *       "conversation_id": "3f9a2c",
         *       "response": "Hello! How can I help?",
         *       "reasoning": "…",
         *       "model": "tiny",
         *       "strategy": "…",
         *       "state": {},
         *       "turn": 1,
         *       "tokens": 1,
         *       "end": "…",
         *       "seconds": 0.5,
         *       "compressed": true,
         *       "calls": [
         *         {
         *           "name": "…",
         *           "arguments": {},
         *           "outcome": "…",
         *           "content": "…",
         *           "seconds": 0.5,
         *           "text": "42"
         *         }
         *       ]
         *     }
         */
        ChatAnswer: {
            /** Conversation Id */
            conversation_id: string;
            /** Response */
            response: string;
            /**
             * Reasoning
             * @description What the model thought before it answered.
             * @default
             */
            reasoning: string;
            /** Model */
            model: string;
            /** Strategy */
            strategy: string | null;
            /** State */
            state: {
                [key: string]: unknown;
            };
            /** Turn */
            turn: number;
            /** Tokens */
            tokens: number;
            /** End */
            end: string;
            /** Seconds */
            seconds: number;
            /** Compressed */
            compressed: boolean;
            /** Calls */
            calls: components["schemas"]["CallView"][];
        };
        /**
         * ChatRequest
         * @description A message to a model, and how it should answer.
         * @example {
         *       "message": "I need help with my order",
         *       "strategy": "customer_service"
         *     }
         */
        ChatRequest: {
            /** Message */
            message: string;
            /**
             * Strategy
             * @description The strategy: customer_service, technical_support, educational or sales.
             */
            strategy?: string | null;
            /**
             * Conversation Id
             * @description The conversation to continue. Leave it out to start a new one.
             */
            conversation_id?: string | null;
            /**
             * Model
             * @description The base model or a trained run. Default: the service's model.
             */
            model?: string | null;
            /**
             * Stream
             * @default false
             */
            stream: boolean;
            /** System */
            system?: string | null;
            /** Temperature */
            temperature?: number | null;
            /** Max New Tokens */
            max_new_tokens?: number | null;
            /** Seed */
            seed?: number | null;
        };
        /**
         * CheckRequest
         * @description A workflow and, optionally, its requirements.
         * @example {
         *       "workflow": "{\"kind\": \"task\", \"name\": \"pour\"}",
         *       "format": "bpmn",
         *       "requirements": "name: tea"
         *     }
         */
        CheckRequest: {
            /**
             * Workflow
             * @description The workflow's text, in any readable format.
             */
            workflow: string;
            /**
             * Format
             * @description Its format. Default: detected.
             */
            format?: string | null;
            /** Requirements */
            requirements?: string | {
                [key: string]: unknown;
            } | null;
        };
        /**
         * CheckView
         * @example {
         *       "ok": true,
         *       "name": "…",
         *       "graphs": {},
         *       "broken": [
         *         {}
         *       ],
         *       "contradictions": [
         *         {}
         *       ],
         *       "notes": [
         *         "Seed study."
         *       ],
         *       "svg": "<svg/>"
         *     }
         */
        CheckView: {
            /** Ok */
            ok: boolean;
            /** Name */
            name: string;
            /** Graphs */
            graphs: {
                [key: string]: {
                    [key: string]: unknown;
                };
            };
            /** Broken */
            broken: {
                [key: string]: unknown;
            }[];
            /** Contradictions */
            contradictions: {
                [key: string]: unknown;
            }[];
            /** Notes */
            notes: string[];
            /** Svg */
            svg: string;
        } & {
            [key: string]: unknown;
        };
        /**
         * CompareView
         * @description Runs side by side, with the verdict of `groupwise compare`.
         * @example {
         *       "metric": "eval/reward_mean",
         *       "arms": [
         *         {
         *           "name": "…",
         *           "runs": [
         *             "cart-7"
         *           ]
         *         }
         *       ],
         *       "settings": {},
         *       "headline": "…",
         *       "verdicts": [
         *         "…"
         *       ],
         *       "cautions": [
         *         "…"
         *       ]
         *     }
         */
        CompareView: {
            /** Metric */
            metric: string;
            /** Arms */
            arms: components["schemas"]["Arm"][];
            /**
             * Settings
             * @description The settings that differ, with each run's value.
             */
            settings: {
                [key: string]: {
                    [key: string]: string;
                };
            };
            /** Headline */
            headline: string;
            /** Verdicts */
            verdicts: string[];
            /** Cautions */
            cautions: string[];
        };
        /**
         * ConversationList
         * @example {
         *       "total": 30,
         *       "next": 1,
         *       "conversations": [
         *         {
         *           "conversation_id": "3f9a2c",
         *           "strategy": "…",
         *           "turns": 1,
         *           "created": 1795030000,
         *           "updated": 1795040000,
         *           "preview": "Hello"
         *         }
         *       ]
         *     }
         */
        ConversationList: {
            /**
             * Total
             * @description How many there are in all.
             */
            total: number;
            /**
             * Next
             * @description The place of the first one of the next page; null on the last page.
             */
            next: number | null;
            /** Conversations */
            conversations: components["schemas"]["ConversationSummary"][];
        };
        /**
         * ConversationSummary
         * @example {
         *       "conversation_id": "3f9a2c",
         *       "strategy": "…",
         *       "turns": 1,
         *       "created": 1795030000,
         *       "updated": 1795040000,
         *       "preview": "Hello"
         *     }
         */
        ConversationSummary: {
            /** Conversation Id */
            conversation_id: string;
            /** Strategy */
            strategy: string | null;
            /** Turns */
            turns: number;
            /** Created */
            created: number;
            /** Updated */
            updated: number;
            /** Preview */
            preview: string;
        };
        /**
         * ConversationView
         * @example {
         *       "conversation_id": "3f9a2c",
         *       "strategy": "…",
         *       "turns": 1,
         *       "created": 1795030000,
         *       "updated": 1795040000,
         *       "preview": "Hello",
         *       "state": {},
         *       "messages": [
         *         {}
         *       ]
         *     }
         */
        ConversationView: {
            /** Conversation Id */
            conversation_id: string;
            /** Strategy */
            strategy: string | null;
            /** Turns */
            turns: number;
            /** Created */
            created: number;
            /** Updated */
            updated: number;
            /** Preview */
            preview: string;
            /** State */
            state: {
                [key: string]: unknown;
            };
            /** Messages */
            messages: {
                [key: string]: unknown;
            }[];
        };
        /**
         * ConvertRequest
         * @example {
         *       "workflow": "{\"kind\": \"task\", \"name\": \"pour\"}",
         *       "format": "bpmn",
         *       "requirements": "name: tea",
         *       "to": "yawl"
         *     }
         */
        ConvertRequest: {
            /**
             * Workflow
             * @description The workflow's text, in any readable format.
             */
            workflow: string;
            /**
             * Format
             * @description Its format. Default: detected.
             */
            format?: string | null;
            /** Requirements */
            requirements?: string | {
                [key: string]: unknown;
            } | null;
            /**
             * To
             * @description The format to write.
             */
            to: string;
        };
        /**
         * Curve
         * @example {
         *       "steps": [
         *         10,
         *         20,
         *         30
         *       ],
         *       "values": [
         *         21,
         *         184.5,
         *         500
         *       ],
         *       "at": [
         *         0.5
         *       ]
         *     }
         */
        Curve: {
            /** Steps */
            steps: number[];
            /** Values */
            values: number[];
            /**
             * At
             * @description Where each point stands on the axis, unless that is the step.
             */
            at?: number[] | null;
        };
        /**
         * DesignRequest
         * @description The requirements to design for, and the search budget.
         * @example {
         *       "requirements": "name: tea",
         *       "workflow": "{\"kind\": \"task\", \"name\": \"pour\"}",
         *       "format": "bpmn",
         *       "evaluations": 1,
         *       "seed": 1,
         *       "check": true
         *     }
         */
        DesignRequest: {
            /**
             * Requirements
             * @description YAML or JSON text, or the object itself.
             */
            requirements: string | {
                [key: string]: unknown;
            };
            /**
             * Workflow
             * @description A workflow to start from, in any readable format.
             */
            workflow?: string | null;
            /**
             * Format
             * @description Its format. Default: detected.
             */
            format?: string | null;
            /**
             * Evaluations
             * @description Designs to evaluate. Default: 64, and more until the starting design is beaten.
             */
            evaluations?: number | null;
            /**
             * Seed
             * @default 0
             */
            seed: number;
            /**
             * Check
             * @description Simulate the best design and report how well its performance was predicted.
             * @default false
             */
            check: boolean;
        };
        /**
         * DesignView
         * @description The best design found: its score as a tree of components, a picture, and where to download it.
         * @example {
         *       "id": "cart-7",
         *       "name": "…",
         *       "headline": "…",
         *       "sound": true,
         *       "score": 0.5,
         *       "groups": {},
         *       "explanation": {},
         *       "broken": [
         *         {}
         *       ],
         *       "design": "…",
         *       "servers": {},
         *       "evaluations": 1,
         *       "svg": "<svg/>",
         *       "performance": {},
         *       "notes": [
         *         "Seed study."
         *       ],
         *       "downloads": [
         *         {
         *           "format": "bpmn",
         *           "title": "Baseline",
         *           "suffix": ".bpmn",
         *           "url": "…",
         *           "cannot": "…"
         *         }
         *       ]
         *     }
         */
        DesignView: {
            /** Id */
            id: string;
            /** Name */
            name: string;
            /**
             * Headline
             * @description The result in one or two sentences.
             */
            headline: string;
            /** Sound */
            sound: boolean;
            /** Score */
            score: number;
            /** Groups */
            groups: {
                [key: string]: number | null;
            };
            /** Explanation */
            explanation: {
                [key: string]: unknown;
            };
            /** Broken */
            broken: {
                [key: string]: unknown;
            }[];
            /**
             * Design
             * @description The design on one line.
             */
            design: string;
            /** Servers */
            servers: {
                [key: string]: number;
            };
            /** Evaluations */
            evaluations: number;
            /** Svg */
            svg: string;
            /** Performance */
            performance: {
                [key: string]: unknown;
            } | null;
            /** Notes */
            notes: string[];
            /** Downloads */
            downloads: components["schemas"]["DownloadView"][];
        } & {
            [key: string]: unknown;
        };
        /**
         * DownloadView
         * @example {
         *       "format": "bpmn",
         *       "title": "Baseline",
         *       "suffix": ".bpmn",
         *       "url": "…",
         *       "cannot": "…"
         *     }
         */
        DownloadView: {
            /** Format */
            format: string;
            /** Title */
            title: string;
            /** Suffix */
            suffix: string;
            /** Url */
            url: string;
            /**
             * Cannot
             * @description Why this format cannot express the workflow; empty if it can.
             */
            cannot: string;
        };
        /**
         * EditRequest
         * @description A workflow, its requirements, and edits in their order. Without edits, the answer says what can be edited.
         * @example {
         *       "workflow": "{\"kind\": \"task\", \"name\": \"pour\"}",
         *       "format": "bpmn",
         *       "requirements": "name: tea",
         *       "edits": [
         *         {
         *           "do": "move",
         *           "activity": "…",
         *           "place": "before",
         *           "other": "…"
         *         }
         *       ],
         *       "seed": 1
         *     }
         */
        EditRequest: {
            /**
             * Workflow
             * @description The workflow's text, in any readable format.
             */
            workflow: string;
            /**
             * Format
             * @description Its format. Default: detected.
             */
            format?: string | null;
            /** Requirements */
            requirements: string | {
                [key: string]: unknown;
            };
            /**
             * Edits
             * @default []
             */
            edits: (components["schemas"]["MoveEdit"] | components["schemas"]["ChanceEdit"] | components["schemas"]["RuleEdit"] | components["schemas"]["StaffEdit"] | components["schemas"]["AssignEdit"])[];
            /**
             * Seed
             * @default 0
             */
            seed: number;
        };
        /**
         * EditView
         * @description The edited workflow with its score, beside what it was before, and what can be edited next.
         * @example {
         *       "id": "cart-7",
         *       "name": "…",
         *       "ok": true,
         *       "score": 0.5,
         *       "explanation": {},
         *       "performance": {},
         *       "broken": [
         *         {}
         *       ],
         *       "contradictions": [
         *         {}
         *       ],
         *       "before": {},
         *       "edits": [
         *         "…"
         *       ],
         *       "changes": [
         *         "…"
         *       ],
         *       "chances": {},
         *       "pools": {},
         *       "activities": {},
         *       "rules": [
         *         "…"
         *       ],
         *       "requirements": {},
         *       "svg": "<svg/>",
         *       "downloads": [
         *         {
         *           "format": "bpmn",
         *           "title": "Baseline",
         *           "suffix": ".bpmn",
         *           "url": "…",
         *           "cannot": "…"
         *         }
         *       ]
         *     }
         */
        EditView: {
            /** Id */
            id: string;
            /** Name */
            name: string;
            /** Ok */
            ok: boolean;
            /**
             * Score
             * @description 0 if a rule is broken, null if no workflow could keep them all.
             */
            score: number | null;
            /** Explanation */
            explanation: {
                [key: string]: unknown;
            } | null;
            /** Performance */
            performance: {
                [key: string]: unknown;
            } | null;
            /** Broken */
            broken: {
                [key: string]: unknown;
            }[];
            /** Contradictions */
            contradictions: {
                [key: string]: unknown;
            }[];
            /** Before */
            before: {
                [key: string]: unknown;
            };
            /**
             * Edits
             * @description The edits in words.
             */
            edits: string[];
            /**
             * Changes
             * @description How the workflow differs from the one sent.
             */
            changes: string[];
            /** Chances */
            chances: {
                [key: string]: number;
            };
            /** Pools */
            pools: {
                [key: string]: {
                    [key: string]: number;
                };
            };
            /** Activities */
            activities: {
                [key: string]: {
                    [key: string]: unknown;
                };
            };
            /**
             * Rules
             * @description The kinds of rules that can be added.
             */
            rules: string[];
            /** Requirements */
            requirements: {
                [key: string]: unknown;
            };
            /** Svg */
            svg: string;
            /** Downloads */
            downloads: components["schemas"]["DownloadView"][];
        } & {
            [key: string]: unknown;
        };
        /**
         * ErrorDetail
         * @description What went wrong (with the value and the limit), what to do about it, and which field caused it.
         * @example {
         *       "code": "run_not_found",
         *       "message": "there is no run 'cart-8'",
         *       "hint": "GET /api/runs lists them.",
         *       "field": "run"
         *     }
         */
        ErrorDetail: {
            /** Code */
            code: string;
            /** Message */
            message: string;
            /**
             * Hint
             * @default
             */
            hint: string;
            /**
             * Field
             * @default
             */
            field: string;
        };
        /**
         * EventPage
         * @description Events in order. Continue from number `next`; with `points`, steps and evaluations are downsampled.
         * @example {
         *       "run": "cart-7",
         *       "attempt": 1,
         *       "next": 1,
         *       "count": 1,
         *       "thinned": true,
         *       "events": [
         *         {
         *           "v": 1,
         *           "run": "cart-7",
         *           "seq": 1,
         *           "attempt": 1,
         *           "time": 0.5,
         *           "step": 30,
         *           "type": "step",
         *           "data": {}
         *         }
         *       ]
         *     }
         */
        EventPage: {
            /** Run */
            run: string;
            /** Attempt */
            attempt: number;
            /** Next */
            next: number;
            /** Count */
            count: number;
            /** Thinned */
            thinned: boolean;
            /** Events */
            events: components["schemas"]["EventView"][];
        };
        /**
         * EventView
         * @example {
         *       "v": 1,
         *       "run": "cart-7",
         *       "seq": 1,
         *       "attempt": 1,
         *       "time": 0.5,
         *       "step": 30,
         *       "type": "step",
         *       "data": {}
         *     }
         */
        EventView: {
            /** V */
            v: number;
            /** Run */
            run: string;
            /** Seq */
            seq: number;
            /** Attempt */
            attempt: number;
            /** Time */
            time: number;
            /** Step */
            step: number;
            /** Type */
            type: string;
            /** Data */
            data: {
                [key: string]: unknown;
            };
        };
        /**
         * ExampleList
         * @example {
         *       "examples": [
         *         {
         *           "name": "…",
         *           "requirements": "name: tea",
         *           "workflow": "{\"kind\": \"task\", \"name\": \"pour\"}"
         *         }
         *       ]
         *     }
         */
        ExampleList: {
            /** Examples */
            examples: components["schemas"]["ExampleView"][];
        };
        /**
         * ExampleView
         * @example {
         *       "name": "…",
         *       "requirements": "name: tea",
         *       "workflow": "{\"kind\": \"task\", \"name\": \"pour\"}"
         *     }
         */
        ExampleView: {
            /** Name */
            name: string;
            /** Requirements */
            requirements: string;
            /** Workflow */
            workflow: string | null;
        };
        /**
         * ExhibitView
         * @description What else can be shown: an episode's moments, a design as a drawing, a program's cases, or a search tree.
         * @example {
         *       "kind": "episode",
         *       "svg": "<svg/>",
         *       "changes": [
         *         "…"
         *       ]
         *     }
         */
        ExhibitView: {
            /**
             * Kind
             * @enum {string}
             */
            kind: "episode" | "design" | "program" | "search";
            /**
             * Svg
             * @description A design, drawn.
             * @default
             */
            svg: string;
            /**
             * Changes
             * @description What sets a design apart from the worst of its group.
             * @default []
             */
            changes: string[];
        } & {
            [key: string]: unknown;
        };
        /**
         * FormatList
         * @example {
         *       "formats": [
         *         {
         *           "name": "…",
         *           "title": "Baseline",
         *           "suffix": ".bpmn",
         *           "reads": true,
         *           "writes": true
         *         }
         *       ]
         *     }
         */
        FormatList: {
            /** Formats */
            formats: components["schemas"]["FormatView"][];
        };
        /**
         * FormatView
         * @example {
         *       "name": "…",
         *       "title": "Baseline",
         *       "suffix": ".bpmn",
         *       "reads": true,
         *       "writes": true
         *     }
         */
        FormatView: {
            /** Name */
            name: string;
            /** Title */
            title: string;
            /** Suffix */
            suffix: string;
            /** Reads */
            reads: boolean;
            /** Writes */
            writes: boolean;
        };
        /**
         * GroupPage
         * @example {
         *       "run": "cart-7",
         *       "step": 30,
         *       "scale": 0.5,
         *       "groups": [
         *         {
         *           "id": "cart-7",
         *           "task_id": "t7",
         *           "prompt": "What is 17 + 25?",
         *           "size": 1,
         *           "mean": 0.5,
         *           "std": 0.5,
         *           "zero_signal": true,
         *           "attempts": [
         *             {
         *               "trajectory_id": "g7/m3",
         *               "total": 30,
         *               "parts": {},
         *               "flags": [
         *                 "…"
         *               ],
         *               "advantage": 0.5,
         *               "length": 1,
         *               "end": "…",
         *               "failure": "…",
         *               "version": 1,
         *               "text": "42",
         *               "reasoning": "…"
         *             }
         *           ]
         *         }
         *       ]
         *     }
         */
        GroupPage: {
            /** Run */
            run: string;
            /** Step */
            step: number;
            /**
             * Scale
             * @description The largest advantage of the step's attempts: what colours are measured by.
             */
            scale: number;
            /** Groups */
            groups: components["schemas"]["GroupView"][];
        };
        /**
         * GroupSteps
         * @example {
         *       "run": "cart-7",
         *       "steps": [
         *         10,
         *         20,
         *         30
         *       ]
         *     }
         */
        GroupSteps: {
            /** Run */
            run: string;
            /** Steps */
            steps: number[];
        };
        /**
         * GroupView
         * @example {
         *       "id": "cart-7",
         *       "task_id": "t7",
         *       "prompt": "What is 17 + 25?",
         *       "size": 1,
         *       "mean": 0.5,
         *       "std": 0.5,
         *       "zero_signal": true,
         *       "attempts": [
         *         {
         *           "trajectory_id": "g7/m3",
         *           "total": 30,
         *           "parts": {},
         *           "flags": [
         *             "…"
         *           ],
         *           "advantage": 0.5,
         *           "length": 1,
         *           "end": "…",
         *           "failure": "…",
         *           "version": 1,
         *           "text": "42",
         *           "reasoning": "…"
         *         }
         *       ]
         *     }
         */
        GroupView: {
            /** Id */
            id: string;
            /** Task Id */
            task_id: string;
            /** Prompt */
            prompt: string;
            /** Size */
            size: number;
            /** Mean */
            mean: number | null;
            /** Std */
            std: number | null;
            /**
             * Zero Signal
             * @description All scores are equal, so there is nothing to learn from.
             */
            zero_signal: boolean;
            /** Attempts */
            attempts: components["schemas"]["AttemptView"][];
        };
        /**
         * GroupingView
         * @description How a strategy divides the attempts of a step.
         * @example {
         *       "run": "cart-7",
         *       "step": 30,
         *       "strategy": "…",
         *       "iterations": [
         *         [
         *           1
         *         ]
         *       ],
         *       "names": {},
         *       "earlier_steps": [
         *         1
         *       ]
         *     }
         */
        GroupingView: {
            /** Run */
            run: string;
            /** Step */
            step: number;
            /** Strategy */
            strategy: string;
            /**
             * Iterations
             * @description Each attempt's group after every iteration; −1 means none yet. The last is the result.
             */
            iterations: number[][];
            /** Names */
            names: {
                [key: string]: string;
            };
            /**
             * Earlier Steps
             * @description Steps that a strategy with a memory was shown first.
             */
            earlier_steps: number[];
        };
        /**
         * Health
         * @example {
         *       "ok": true,
         *       "version": "…"
         *     }
         */
        Health: {
            /** Ok */
            ok: boolean;
            /** Version */
            version: string;
        };
        /**
         * JobList
         * @example {
         *       "total": 30,
         *       "next": 1,
         *       "jobs": [
         *         {
         *           "id": "cart-7",
         *           "state": "finished",
         *           "cancelling": true,
         *           "run": "cart-7",
         *           "product": "control",
         *           "created": 1795030000,
         *           "updated": 1795040000,
         *           "step": 30,
         *           "total": 30,
         *           "attempt": 1,
         *           "metrics": {
         *             "reward/mean": 421.5,
         *             "eval/reward_mean": 500
         *           },
         *           "error": {
         *             "code": "run_not_found",
         *             "message": "there is no run 'cart-8'",
         *             "hint": "GET /api/runs lists them.",
         *             "field": "run"
         *           },
         *           "request": {}
         *         }
         *       ]
         *     }
         */
        JobList: {
            /**
             * Total
             * @description How many there are in all.
             */
            total: number;
            /**
             * Next
             * @description The place of the first one of the next page; null on the last page.
             */
            next: number | null;
            /** Jobs */
            jobs: components["schemas"]["JobView"][];
        };
        /**
         * JobView
         * @description A job: the request, and the state of its run.
         * @example {
         *       "id": "cart-7",
         *       "state": "running",
         *       "cancelling": true,
         *       "run": "cart-7",
         *       "product": "control",
         *       "created": 1795030000,
         *       "updated": 1795040000,
         *       "step": 30,
         *       "total": 30,
         *       "attempt": 1,
         *       "metrics": {
         *         "reward/mean": 421.5,
         *         "eval/reward_mean": 500
         *       },
         *       "error": {
         *         "code": "run_not_found",
         *         "message": "there is no run 'cart-8'",
         *         "hint": "GET /api/runs lists them.",
         *         "field": "run"
         *       },
         *       "request": {}
         *     }
         */
        JobView: {
            /** Id */
            id: string;
            /**
             * State
             * @enum {string}
             */
            state: "queued" | "running" | "finished" | "failed" | "cancelled";
            /**
             * Cancelling
             * @description The job is running and will stop after the current step.
             */
            cancelling: boolean;
            /** Run */
            run: string;
            /** Product */
            product: string;
            /** Created */
            created: number;
            /** Updated */
            updated: number;
            /** Step */
            step: number;
            /** Total */
            total: number;
            /**
             * Attempt
             * @description How often the run's process was started.
             */
            attempt: number;
            /** Metrics */
            metrics: {
                [key: string]: number | null;
            };
            error?: components["schemas"]["ErrorDetail"] | null;
            /** Request */
            request: {
                [key: string]: unknown;
            };
        };
        /**
         * LabelChange
         * @description What to change of a run's labels; what is left out stays as it is.
         * @example {
         *       "title": "Baseline",
         *       "tags": [
         *         "baseline"
         *       ],
         *       "notes": "Seed study.",
         *       "archived": true
         *     }
         */
        LabelChange: {
            /** Title */
            title?: string | null;
            /** Tags */
            tags?: string[] | null;
            /** Notes */
            notes?: string | null;
            /** Archived */
            archived?: boolean | null;
        };
        /**
         * Me
         * @example {
         *       "name": "…",
         *       "scope": "…",
         *       "keys_required": true
         *     }
         */
        Me: {
            /** Name */
            name: string;
            /** Scope */
            scope: string;
            /** Keys Required */
            keys_required: boolean;
        };
        /**
         * MetricView
         * @description What a metric means: a row of the registry that the page, reports and documents read.
         * @example {
         *       "name": "…",
         *       "meaning": "…",
         *       "unit": "share",
         *       "better": "higher",
         *       "panel": "…",
         *       "label": "…",
         *       "worry": "…"
         *     }
         */
        MetricView: {
            /** Name */
            name: string;
            /** Meaning */
            meaning: string;
            /** Unit */
            unit: string;
            /**
             * Better
             * @enum {string}
             */
            better: "higher" | "lower" | "";
            /**
             * Panel
             * @description The chart it is drawn in; empty if it has none of its own.
             */
            panel: string;
            /** Label */
            label: string;
            /**
             * Worry
             * @description When to look closer.
             */
            worry: string;
        };
        /**
         * MetricsView
         * @example {
         *       "uptime": 0.5,
         *       "jobs": {},
         *       "requests": {},
         *       "websocket": {},
         *       "chat": {},
         *       "machine": {},
         *       "runs": {}
         *     }
         */
        MetricsView: {
            /** Uptime */
            uptime: number;
            /** Jobs */
            jobs: {
                [key: string]: number;
            };
            /** Requests */
            requests: {
                [key: string]: number;
            };
            /** Websocket */
            websocket: {
                [key: string]: number;
            };
            /** Chat */
            chat: {
                [key: string]: unknown;
            };
            /** Machine */
            machine: {
                [key: string]: number;
            };
            /**
             * Runs
             * @description Latest metrics of running jobs.
             */
            runs: {
                [key: string]: {
                    [key: string]: number | null;
                };
            };
        };
        /**
         * ModelList
         * @example {
         *       "models": [
         *         {
         *           "id": "cart-7",
         *           "kind": "run",
         *           "step": 30
         *         }
         *       ],
         *       "strategies": [
         *         "customer_service"
         *       ]
         *     }
         */
        ModelList: {
            /** Models */
            models: components["schemas"]["ModelView"][];
            /** Strategies */
            strategies: string[];
        };
        /**
         * ModelView
         * @example {
         *       "id": "cart-7",
         *       "kind": "run",
         *       "step": 30
         *     }
         */
        ModelView: {
            /** Id */
            id: string;
            /**
             * Kind
             * @enum {string}
             */
            kind: "base" | "run";
            /** Step */
            step: number | null;
        };
        /**
         * MoveEdit
         * @description Put an activity directly before or after another one, or in parallel to it.
         * @example {
         *       "do": "move",
         *       "activity": "…",
         *       "place": "before",
         *       "other": "…"
         *     }
         */
        MoveEdit: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            do: "move";
            /** Activity */
            activity: string;
            /**
             * Place
             * @enum {string}
             */
            place: "before" | "after" | "beside";
            /** Other */
            other: string;
        };
        /**
         * Order
         * @example {
         *       "job": "a70f03aaa79a43f1",
         *       "run": "cart-7",
         *       "order": "stop-1"
         *     }
         */
        Order: {
            /** Job */
            job: string;
            /** Run */
            run: string;
            /**
             * Order
             * @description The id of this command; the run reports its outcome in a `control` event with the same id.
             */
            order: string;
        };
        /**
         * Ready
         * @example {
         *       "ok": true,
         *       "database": "…",
         *       "supervisor": "…"
         *     }
         */
        Ready: {
            /** Ok */
            ok: boolean;
            /** Database */
            database: string;
            /** Supervisor */
            supervisor: string;
        };
        /**
         * Refusal
         * @description The body of every error response.
         * @example {
         *       "error": {
         *         "code": "run_not_found",
         *         "message": "there is no run 'cart-8'",
         *         "hint": "GET /api/runs lists them.",
         *         "field": "run"
         *       }
         *     }
         */
        Refusal: {
            error: components["schemas"]["ErrorDetail"];
        };
        /**
         * RuleEdit
         * @description Add a rule: a pair of activities, one activity (`must_include`), or seconds (`deadline`).
         * @example {
         *       "do": "rule",
         *       "rule": "…",
         *       "first": "…",
         *       "then": "…",
         *       "seconds": 0.5
         *     }
         */
        RuleEdit: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            do: "rule";
            /** Rule */
            rule: string;
            /**
             * First
             * @default
             */
            first: string;
            /**
             * Then
             * @default
             */
            then: string;
            /** Seconds */
            seconds?: number | null;
        };
        /**
         * RunList
         * @example {
         *       "total": 30,
         *       "next": 1,
         *       "runs": [
         *         {
         *           "id": "cart-7",
         *           "state": "finished",
         *           "step": 30,
         *           "total": 30,
         *           "attempt": 1,
         *           "updated": 1795040000,
         *           "metrics": {
         *             "reward/mean": 421.5,
         *             "eval/reward_mean": 500
         *           },
         *           "product": "control",
         *           "environment": "CartPole-v1",
         *           "title": "Baseline",
         *           "tags": [
         *             "baseline"
         *           ],
         *           "notes": "Seed study.",
         *           "archived": true,
         *           "owner": "ann",
         *           "job": "a70f03aaa79a43f1",
         *           "job_state": "…",
         *           "error": {
         *             "code": "run_not_found",
         *             "message": "there is no run 'cart-8'",
         *             "hint": "GET /api/runs lists them.",
         *             "field": "run"
         *           }
         *         }
         *       ],
         *       "counts": {}
         *     }
         */
        RunList: {
            /**
             * Total
             * @description How many there are in all.
             */
            total: number;
            /**
             * Next
             * @description The place of the first one of the next page; null on the last page.
             */
            next: number | null;
            /** Runs */
            runs: components["schemas"]["RunView"][];
            /**
             * Counts
             * @description How many runs there are for each state, product, environment, tag and owner.
             */
            counts: {
                [key: string]: {
                    [key: string]: number;
                };
            };
        };
        /**
         * RunOrder
         * @description One change to many runs at once.
         * @example {
         *       "runs": [
         *         "cart-7",
         *         "cart-8"
         *       ],
         *       "do": "tag",
         *       "tag": "baseline"
         *     }
         */
        RunOrder: {
            /** Runs */
            runs: string[];
            /**
             * Do
             * @enum {string}
             */
            do: "archive" | "restore" | "tag" | "untag" | "delete";
            /**
             * Tag
             * @description The tag to add or remove.
             */
            tag?: string | null;
        };
        /**
         * RunOrderAnswer
         * @example {
         *       "done": [
         *         "…"
         *       ],
         *       "refused": [
         *         {
         *           "run": "cart-7",
         *           "error": {
         *             "code": "run_not_found",
         *             "message": "there is no run 'cart-8'",
         *             "hint": "GET /api/runs lists them.",
         *             "field": "run"
         *           }
         *         }
         *       ]
         *     }
         */
        RunOrderAnswer: {
            /** Done */
            done: string[];
            /** Refused */
            refused: components["schemas"]["RunRefusal"][];
        };
        /**
         * RunRefusal
         * @example {
         *       "run": "cart-7",
         *       "error": {
         *         "code": "run_not_found",
         *         "message": "there is no run 'cart-8'",
         *         "hint": "GET /api/runs lists them.",
         *         "field": "run"
         *       }
         *     }
         */
        RunRefusal: {
            /** Run */
            run: string;
            error: components["schemas"]["ErrorDetail"];
        };
        /**
         * RunView
         * @description The current state of a run, whoever started it.
         * @example {
         *       "id": "cart-7",
         *       "state": "finished",
         *       "step": 30,
         *       "total": 30,
         *       "attempt": 1,
         *       "updated": 1795040000,
         *       "metrics": {
         *         "reward/mean": 421.5,
         *         "eval/reward_mean": 500
         *       },
         *       "product": "control",
         *       "environment": "CartPole-v1",
         *       "title": "Baseline",
         *       "tags": [
         *         "baseline"
         *       ],
         *       "notes": "Seed study.",
         *       "archived": true,
         *       "owner": "ann",
         *       "job": "a70f03aaa79a43f1",
         *       "job_state": "…",
         *       "error": {
         *         "code": "run_not_found",
         *         "message": "there is no run 'cart-8'",
         *         "hint": "GET /api/runs lists them.",
         *         "field": "run"
         *       }
         *     }
         */
        RunView: {
            /** Id */
            id: string;
            /**
             * State
             * @description queued, created, running, stopping, interrupted, stopped, cancelled, failed, finished or damaged.
             */
            state: string;
            /** Step */
            step: number;
            /** Total */
            total: number;
            /** Attempt */
            attempt: number;
            /** Updated */
            updated: number;
            /** Metrics */
            metrics: {
                [key: string]: number | null;
            };
            /**
             * Product
             * @default
             */
            product: string;
            /**
             * Environment
             * @default
             */
            environment: string;
            /**
             * Title
             * @description A name for people; the run's own name never changes.
             * @default
             */
            title: string;
            /**
             * Tags
             * @default []
             */
            tags: string[];
            /**
             * Notes
             * @default
             */
            notes: string;
            /**
             * Archived
             * @default false
             */
            archived: boolean;
            /**
             * Owner
             * @description The name of the key that started it; empty for the operator's runs.
             * @default
             */
            owner: string;
            /**
             * Job
             * @description The job it belongs to, if any.
             */
            job?: string | null;
            /** Job State */
            job_state?: string | null;
            /** @description Why its job failed. */
            error?: components["schemas"]["ErrorDetail"] | null;
        };
        /**
         * RunWhole
         * @example {
         *       "id": "cart-7",
         *       "state": "finished",
         *       "step": 30,
         *       "total": 30,
         *       "attempt": 1,
         *       "updated": 1795040000,
         *       "metrics": {
         *         "reward/mean": 421.5,
         *         "eval/reward_mean": 500
         *       },
         *       "product": "control",
         *       "environment": "CartPole-v1",
         *       "title": "Baseline",
         *       "tags": [
         *         "baseline"
         *       ],
         *       "notes": "Seed study.",
         *       "archived": true,
         *       "owner": "ann",
         *       "job": "a70f03aaa79a43f1",
         *       "job_state": "…",
         *       "error": {
         *         "code": "run_not_found",
         *         "message": "there is no run 'cart-8'",
         *         "hint": "GET /api/runs lists them.",
         *         "field": "run"
         *       },
         *       "config": {
         *         "task": {
         *           "environment": "CartPole-v1"
         *         }
         *       },
         *       "events": 1,
         *       "known": [
         *         {
         *           "name": "…",
         *           "meaning": "…",
         *           "unit": "share",
         *           "better": "higher",
         *           "panel": "…",
         *           "label": "…",
         *           "worry": "…"
         *         }
         *       ],
         *       "left_out": 1,
         *       "report": true
         *     }
         */
        RunWhole: {
            /** Id */
            id: string;
            /**
             * State
             * @description queued, created, running, stopping, interrupted, stopped, cancelled, failed, finished or damaged.
             */
            state: string;
            /** Step */
            step: number;
            /** Total */
            total: number;
            /** Attempt */
            attempt: number;
            /** Updated */
            updated: number;
            /** Metrics */
            metrics: {
                [key: string]: number | null;
            };
            /**
             * Product
             * @default
             */
            product: string;
            /**
             * Environment
             * @default
             */
            environment: string;
            /**
             * Title
             * @description A name for people; the run's own name never changes.
             * @default
             */
            title: string;
            /**
             * Tags
             * @default []
             */
            tags: string[];
            /**
             * Notes
             * @default
             */
            notes: string;
            /**
             * Archived
             * @default false
             */
            archived: boolean;
            /**
             * Owner
             * @description The name of the key that started it; empty for the operator's runs.
             * @default
             */
            owner: string;
            /**
             * Job
             * @description The job it belongs to, if any.
             */
            job?: string | null;
            /** Job State */
            job_state?: string | null;
            /** @description Why its job failed. */
            error?: components["schemas"]["ErrorDetail"] | null;
            /** Config */
            config: {
                [key: string]: {
                    [key: string]: unknown;
                };
            };
            /**
             * Events
             * @description Number of events so far, which is also the number of the next one.
             */
            events: number;
            /**
             * Known
             * @description The metrics it has logged so far, in the order to show them.
             */
            known: components["schemas"]["MetricView"][];
            /**
             * Left Out
             * @description Metrics that are too many to be drawn, and so are not among `known`.
             */
            left_out: number;
            /**
             * Report
             * @description Whether it has a report: GET /api/runs/{run}/report.
             */
            report: boolean;
        };
        /**
         * ScaleAnswer
         * @example {
         *       "orders": [
         *         {
         *           "job": "a70f03aaa79a43f1",
         *           "run": "cart-7",
         *           "order": "stop-1"
         *         }
         *       ]
         *     }
         */
        ScaleAnswer: {
            /** Orders */
            orders: components["schemas"]["Order"][];
        };
        /**
         * ScaleRequest
         * @description Change the number of workers of running jobs: by a factor, to a number, or within limits.
         * @example {
         *       "workers": 4
         *     }
         */
        ScaleRequest: {
            /** Scale Factor */
            scale_factor?: number | null;
            /** Workers */
            workers?: number | null;
            /** Least */
            least?: number | null;
            /** Most */
            most?: number | null;
            /**
             * Job
             * @description One job. Default: all jobs.
             */
            job?: string | null;
        };
        /**
         * SeriesPage
         * @description Curves downsampled to at most `points` points: the minimum and maximum of each interval.
         * @example {
         *       "run": "cart-7",
         *       "next": 1,
         *       "names": [
         *         "reward/mean"
         *       ],
         *       "series": {}
         *     }
         */
        SeriesPage: {
            /** Run */
            run: string;
            /** Next */
            next: number;
            /** Names */
            names: string[];
            /** Series */
            series: {
                [key: string]: components["schemas"]["Curve"];
            };
        };
        /**
         * SimulateRequest
         * @example {
         *       "workflow": "{\"kind\": \"task\", \"name\": \"pour\"}",
         *       "format": "bpmn",
         *       "requirements": "name: tea",
         *       "cases": 20,
         *       "seed": 1,
         *       "tier": "simulation",
         *       "pictures": true
         *     }
         */
        SimulateRequest: {
            /**
             * Workflow
             * @description The workflow's text, in any readable format.
             */
            workflow: string;
            /**
             * Format
             * @description Its format. Default: detected.
             */
            format?: string | null;
            /** Requirements */
            requirements?: string | {
                [key: string]: unknown;
            } | null;
            /** Cases */
            cases?: number | null;
            /**
             * Seed
             * @default 0
             */
            seed: number;
            /**
             * Tier
             * @default simulation
             * @enum {string}
             */
            tier: "auto" | "analytic" | "simulation" | "schedule";
            /**
             * Pictures
             * @description Also draw the first cases as moving tokens, and the queues.
             * @default false
             */
            pictures: boolean;
        };
        /**
         * SimulateView
         * @example {
         *       "ok": true,
         *       "tier": "simulation",
         *       "cycle_time": 0.5,
         *       "cost": 0.5,
         *       "throughput": 0.5,
         *       "utilisation": {},
         *       "broken": [
         *         {}
         *       ]
         *     }
         */
        SimulateView: {
            /** Ok */
            ok: boolean;
            /** Tier */
            tier: string;
            /** Cycle Time */
            cycle_time: number | null;
            /** Cost */
            cost: number | null;
            /** Throughput */
            throughput: number | null;
            /** Utilisation */
            utilisation: {
                [key: string]: number | null;
            };
            /** Broken */
            broken: {
                [key: string]: unknown;
            }[];
        } & {
            [key: string]: unknown;
        };
        /**
         * StaffEdit
         * @description Give a pool so many servers.
         * @example {
         *       "do": "staff",
         *       "pool": "…",
         *       "count": 1
         *     }
         */
        StaffEdit: {
            /**
             * @description discriminator enum property added by openapi-typescript
             * @enum {string}
             */
            do: "staff";
            /** Pool */
            pool: string;
            /** Count */
            count: number;
        };
        /**
         * StepAttempts
         * @description The scored attempts of a step, column by column; of very many, whole groups evenly spaced.
         * @example {
         *       "run": "cart-7",
         *       "step": 30,
         *       "recorded": 1,
         *       "shown": 1,
         *       "unscored": 1,
         *       "not_finite": 1,
         *       "ids": [
         *         "…"
         *       ],
         *       "group_names": [
         *         "…"
         *       ],
         *       "groups": [
         *         1
         *       ],
         *       "tasks": [
         *         "…"
         *       ],
         *       "totals": [
         *         0.5
         *       ],
         *       "lengths": [
         *         1
         *       ],
         *       "advantages": [
         *         0.5
         *       ],
         *       "feature_names": [
         *         "…"
         *       ],
         *       "features": [
         *         [
         *           0.5
         *         ]
         *       ],
         *       "moments": [
         *         [
         *           1
         *         ]
         *       ],
         *       "rewards": [
         *         [
         *           0.5
         *         ]
         *       ],
         *       "values": [
         *         [
         *           21,
         *           184.5,
         *           500
         *         ]
         *       ],
         *       "last_values": [
         *         0.5
         *       ],
         *       "terminated": [
         *         true
         *       ],
         *       "explained_variance": 0.5,
         *       "gamma": 0.5,
         *       "gae_lambda": 0.5,
         *       "size_unit": "…"
         *     }
         */
        StepAttempts: {
            /** Run */
            run: string;
            /** Step */
            step: number;
            /**
             * Recorded
             * @description Attempts in the file.
             */
            recorded: number;
            /** Shown */
            shown: number;
            /**
             * Unscored
             * @description Left out because they have no finite score.
             */
            unscored: number;
            /**
             * Not Finite
             * @description Left out because an observation or reward is not finite.
             */
            not_finite: number;
            /** Ids */
            ids: string[];
            /** Group Names */
            group_names: string[];
            /**
             * Groups
             * @description Each attempt's place in `group_names`.
             */
            groups: number[];
            /** Tasks */
            tasks: string[];
            /** Totals */
            totals: number[];
            /** Lengths */
            lengths: number[];
            /**
             * Advantages
             * @description What the run learned from: the mean over an attempt's actions.
             */
            advantages: number[];
            /** Feature Names */
            feature_names: string[];
            /**
             * Features
             * @description What clusters are made of, one row per attempt.
             */
            features: number[][];
            /**
             * Moments
             * @description The steps of an attempt that were recorded.
             */
            moments: number[][];
            /**
             * Rewards
             * @description What was earned up to each moment since the one before.
             */
            rewards: number[][];
            /**
             * Values
             * @description What a linear critic fitted to these attempts expects.
             */
            values: number[][];
            /**
             * Last Values
             * @description What it expects after the last moment; 0 after an end.
             */
            last_values: number[];
            /** Terminated */
            terminated: boolean[];
            /** Explained Variance */
            explained_variance: number | null;
            /** Gamma */
            gamma: number;
            /** Gae Lambda */
            gae_lambda: number;
            /**
             * Size Unit
             * @description What a group's size counts in the loss: actions or attempts.
             */
            size_unit: string;
        };
        /**
         * TokenView
         * @example {
         *       "text": "42",
         *       "advantage": 0.5,
         *       "logp": 0.5
         *     }
         */
        TokenView: {
            /** Text */
            text: string;
            /**
             * Advantage
             * @description Null for tokens that the model did not write.
             */
            advantage: number | null;
            /** Logp */
            logp: number | null;
        };
        /**
         * TrainRequest
         * @description What to train: `prompts` for a language model, or the complete `config` of a run of any product.
         * @example {
         *       "config": {
         *         "task": {
         *           "environment": "CartPole-v1"
         *         }
         *       },
         *       "name": "cart-7"
         *     }
         */
        TrainRequest: {
            /** Prompts */
            prompts?: string[] | null;
            /**
             * Held Out
             * @description Evaluation prompts. Default: a tenth of the prompts, or built-in ones if there are fewer than 20.
             */
            held_out?: string[] | null;
            /**
             * Config
             * @description Settings, nested or flat, as in a settings file.
             */
            config?: {
                [key: string]: unknown;
            } | null;
            /**
             * Strategy
             * @description How: the groups of a step are scored by worker processes, see POST /api/scale.
             * @default computational
             * @constant
             */
            strategy: "computational";
            /**
             * Num Iterations
             * @default 10
             */
            num_iterations: number;
            /**
             * Use Neural Rewards
             * @default false
             */
            use_neural_rewards: boolean;
            /**
             * Use Ruler Rewards
             * @default false
             */
            use_ruler_rewards: boolean;
            /**
             * Reward
             * @description The name of the reward; see docs/rewards.md.
             * @default customer_service
             */
            reward: string;
            /**
             * Model
             * @description The initial model: tiny, a run, a folder or a Hugging Face Hub name.
             * @default tiny
             */
            model: string;
            /**
             * Seed
             * @default 0
             */
            seed: number;
            /**
             * Name
             * @description The run's name. Default: a generated one.
             */
            name?: string | null;
        };
        /**
         * TrajectoryView
         * @example {
         *       "trajectory_id": "g7/m3",
         *       "total": 30,
         *       "parts": {},
         *       "flags": [
         *         "…"
         *       ],
         *       "advantage": 0.5,
         *       "length": 1,
         *       "end": "…",
         *       "failure": "…",
         *       "version": 1,
         *       "text": "42",
         *       "reasoning": "…",
         *       "step": 30,
         *       "group_id": "g7",
         *       "task_id": "t7",
         *       "prompt": "What is 17 + 25?",
         *       "scale": 0.5,
         *       "exhibit": {
         *         "kind": "episode",
         *         "svg": "<svg/>",
         *         "changes": [
         *           "…"
         *         ]
         *       },
         *       "turns": [
         *         {
         *           "role": "policy",
         *           "tokens": [
         *             {
         *               "text": "42",
         *               "advantage": 0.5,
         *               "logp": 0.5
         *             }
         *           ]
         *         }
         *       ]
         *     }
         */
        TrajectoryView: {
            /** Trajectory Id */
            trajectory_id: string;
            /**
             * Total
             * @description The score; null if the attempt failed.
             */
            total: number | null;
            /** Parts */
            parts: {
                [key: string]: number | null;
            };
            /** Flags */
            flags: string[];
            /** Advantage */
            advantage: number;
            /** Length */
            length: number;
            /** End */
            end: string;
            /** Failure */
            failure: string;
            /** Version */
            version: number;
            /** Text */
            text: string;
            /**
             * Reasoning
             * @description What the model thought before it said `text`; empty if it did not.
             */
            reasoning: string;
            /** Step */
            step: number;
            /** Group Id */
            group_id: string;
            /** Task Id */
            task_id: string;
            /** Prompt */
            prompt: string;
            /**
             * Scale
             * @description The largest advantage of the step's attempts: what colours are measured by.
             */
            scale: number;
            exhibit?: components["schemas"]["ExhibitView"] | null;
            /**
             * Turns
             * @description Empty if tokens were not recorded.
             */
            turns: components["schemas"]["TurnView"][];
        };
        /**
         * TurnView
         * @example {
         *       "role": "policy",
         *       "tokens": [
         *         {
         *           "text": "42",
         *           "advantage": 0.5,
         *           "logp": 0.5
         *         }
         *       ]
         *     }
         */
        TurnView: {
            /**
             * Role
             * @enum {string}
             */
            role: "policy" | "context";
            /** Tokens */
            tokens: components["schemas"]["TokenView"][];
        };
    };
    responses: never;
    parameters: never;
    requestBodies: never;
    headers: never;
    pathItems: never;
}
export type $defs = Record<string, never>;
export type operations = Record<string, never>;
