// Made from the service's OpenAPI document by `npm run types`; do not edit.

export type paths = Record<string, never>;
export type webhooks = Record<string, never>;
export interface components {
    schemas: {
        /** AttemptView */
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
        /** ChatAnswer */
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
        /** CheckView */
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
        /** ConversationList */
        ConversationList: {
            /** Conversations */
            conversations: components["schemas"]["ConversationSummary"][];
        };
        /** ConversationSummary */
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
        /** ConversationView */
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
        /** ConvertRequest */
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
        /** Curve */
        Curve: {
            /** Steps */
            steps: number[];
            /** Values */
            values: number[];
        };
        /**
         * DesignRequest
         * @description The requirements to design for, and the search budget.
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
        /** DownloadView */
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
         * ErrorDetail
         * @description What went wrong (with the value and the limit), what to do about it, and which field caused it.
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
        /** EventView */
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
        /** ExampleList */
        ExampleList: {
            /** Examples */
            examples: components["schemas"]["ExampleView"][];
        };
        /** ExampleView */
        ExampleView: {
            /** Name */
            name: string;
            /** Requirements */
            requirements: string;
            /** Workflow */
            workflow: string | null;
        };
        /** FormatList */
        FormatList: {
            /** Formats */
            formats: components["schemas"]["FormatView"][];
        };
        /** FormatView */
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
        /** GroupPage */
        GroupPage: {
            /** Run */
            run: string;
            /** Step */
            step: number;
            /** Groups */
            groups: components["schemas"]["GroupView"][];
        };
        /** GroupSteps */
        GroupSteps: {
            /** Run */
            run: string;
            /** Steps */
            steps: number[];
        };
        /** GroupView */
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
        /** Health */
        Health: {
            /** Ok */
            ok: boolean;
            /** Version */
            version: string;
        };
        /** JobList */
        JobList: {
            /** Jobs */
            jobs: components["schemas"]["JobView"][];
        };
        /**
         * JobView
         * @description A job: the request, and the state of its run.
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
        /** Me */
        Me: {
            /** Name */
            name: string;
            /** Scope */
            scope: string;
            /** Keys Required */
            keys_required: boolean;
        };
        /** MetricsView */
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
        /** ModelList */
        ModelList: {
            /** Models */
            models: components["schemas"]["ModelView"][];
            /** Strategies */
            strategies: string[];
        };
        /** ModelView */
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
        /** Order */
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
        /** Ready */
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
         */
        Refusal: {
            error: components["schemas"]["ErrorDetail"];
        };
        /** RunList */
        RunList: {
            /** Runs */
            runs: components["schemas"]["RunView"][];
        };
        /**
         * RunView
         * @description The current state of a run, whoever started it.
         */
        RunView: {
            /** Id */
            id: string;
            /**
             * State
             * @description created, running, interrupted, stopped, failed, finished or damaged.
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
        };
        /** RunWhole */
        RunWhole: {
            /** Id */
            id: string;
            /**
             * State
             * @description created, running, interrupted, stopped, failed, finished or damaged.
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
             * Job
             * @description The job it belongs to, if any.
             */
            job: string | null;
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
        };
        /** ScaleAnswer */
        ScaleAnswer: {
            /** Orders */
            orders: components["schemas"]["Order"][];
        };
        /**
         * ScaleRequest
         * @description Change the number of workers of running jobs: by a factor, to a number, or within limits.
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
        /** SimulateRequest */
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
        };
        /** SimulateView */
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
        /** TokenView */
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
        /** TrajectoryView */
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
             * Turns
             * @description Empty if tokens were not recorded.
             */
            turns: components["schemas"]["TurnView"][];
        };
        /** TurnView */
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
