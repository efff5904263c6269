"""MAE, Multi-Agent Evolve: one model proposes questions, solves them, and judges both.

arXiv 2510.23595. No true answer is known. The flow reads as Algorithm 1: D is the pool of
questions, P that of questions with their answers.

Departures
- Exactly the share `questions.referenced` of a batch shows a question of D; the paper tosses a coin
  for each prompt.
- The first questions of MAE (zero) are what the base model asks; nobody selects them, and
  unreadable ones are missing.
- A question that is already in D, word for word, does not enter again. References and questions are
  drawn without replacement, until all have been drawn.
- A batch is 128 replies of each role (table 3: "train batch size 128").
- A mark s of 1 to 10 counts as (s - 1) / 9, so that 0.7 admits 8, 9 and 10. The paper has marks in
  0..1 without saying how they are scaled.
- A reply whose last element is not valid, such as a `<score>` that is no number, has no format
  reward, whatever else it contains.
- A Solver's reply without a whole `<answer>` is not shown to the Judge: V_J is 0, and it does not
  enter P. Answers that only measure a question's difficulty are judged as they stand, as in the
  released code. A Proposer's reply without a question is worth 0.
- A question or answer without a readable mark has no reward, and so no advantage; the released code
  takes 0.5 (`judge.unread`).
- The paper gives no clip range and no mini-batch. Those here are the released code's: 0.2 and 0.28,
  64 rollouts, a mean over tokens, and a dual clip of 3. Advantages divide by the population
  standard deviation. A prompt may be as long as the context allows (table 3: 8,192 tokens).
- Prompts are worded for this project. The set `paper` asks for what the paper's do. In our set
  `english` the Judge works out the right answer itself, and the Proposer sees an example.
- Answers are sampled as the policy gives them. The released code adds a repetition penalty of 1.02
  and bans repeated 15-grams; what is sampled is then not what the trainer's ratio assumes.
- Benchmarks: BIG-Bench Hard, MBPP+ and HumanEval+ are asked by lm-evaluation-harness, and MATH-500
  stands for MATH. Other differences are in the entries (`differs`).
"""

from __future__ import annotations

from flows.blocks.questions import score_held_out
from flows.mae.config import Config
from flows.mae.fine_tuning import fine_tune
from flows.mae.roles import Roles
from flows.mae.steps import first_questions, judge, learn, propose, solve
from flows.method import method
from flows.run import Player, Run


@method(Config)
def mae_iteration(run: Run[Config]) -> Player:
    """Proposer, Solver and Judge are one model; every step updates it once for all three."""
    roles = Roles(run.cfg)
    model = run.player("model")  # line 1
    if run.cfg.fine_tuning:  # the baseline SFT, in place of self-play
        return fine_tune(run, roles.solver, model)
    D = first_questions(run, roles, model)  # line 2
    P = None
    score_held_out(run, run.place.iteration(0), roles.solver, model)
    for _, iteration in run.iterations():
        for t in range(1, run.cfg.steps + 1):  # line 3
            step = iteration.phase("evolve").step(t)
            D, proposed = propose(run, roles, step, model, D)  # lines 4-15
            P, solved = solve(run, roles, step, model, D, P)  # lines 16-19
            judged = judge(run, roles, step, model, P)  # lines 20-22
            played = {"proposer": proposed, "solver": solved, "judge": judged}
            model = learn(run, step, model, played)  # line 23
        run.watch_pool(iteration, model.policy.id, D)
        score_held_out(run, iteration, roles.solver, model)
    return model
