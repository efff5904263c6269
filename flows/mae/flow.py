"""MAE, Multi-Agent Evolve: one model proposes questions, solves them, and judges both.

arXiv 2510.23595. No reference answers are known. The flow reads as Algorithm 1: D is the pool of
questions, P the pool of questions with answers.

Departures
- Exactly the share `questions.referenced` of a batch's prompts shows a question of D; the paper
  tosses a coin for each prompt.
- The first questions of MAE (zero) are asked by the base model; they are not filtered, except that
  unreadable ones are missing.
- A question that is already in D, word for word, is not added again. References and questions are
  drawn without replacement until all have been drawn.
- A batch is 128 replies of each role (table 3: "train batch size 128").
- A mark s from 1 to 10 is scaled to (s - 1) / 9, so a threshold of 0.7 admits 8, 9 and 10. The
  paper's marks are in 0..1; it does not say how they are scaled.
- A reply whose last element is invalid, such as a `<score>` that is not a number, gets no format
  reward, whatever else it contains.
- A Solver's reply without a complete `<answer>` is not shown to the Judge: V_J is 0, and it is not
  added to P. Answers that only measure a question's difficulty are judged as they are, as in the
  released code. A Proposer's reply without a question gets 0.
- A question or answer without a readable mark has no reward, and hence no advantage; the released
  code takes 0.5 (`judge.unread`).
- The paper gives no clip range and no mini-batch size. We take the released code's: clip ranges of
  0.2 and 0.28, 64 rollouts, a mean over tokens, and a dual clip of 3. Advantages are divided by the
  population standard deviation. A prompt may be as long as the context allows (table 3: 8,192
  tokens).
- Prompts are worded for this project. The set `paper` makes the same requests as the paper's
  prompts. In our set `english`, the Judge works out the right answer itself, and the Proposer sees
  an example.
- Answers are sampled from the policy's own distribution. The released code adds a repetition
  penalty of 1.02 and bans repeated 15-grams, so its samples do not follow the distribution that the
  trainer's ratio assumes.
- Benchmarks: BIG-Bench Hard, MBPP+ and HumanEval+ are run by lm-evaluation-harness, and MATH-500
  stands in for MATH. Other differences are listed in the entries (`differs`).
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
