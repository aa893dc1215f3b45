"""Is a measurement valid? Each guard is a function of plain values: a `GuardFinding`, or None.

docs/guards.md lists each guard's fault, rule and reason.
"""

from pytest_asperf.analysis.guards.account import (
    false_account as false_account,
    false_drafts as false_drafts,
)
from pytest_asperf.analysis.guards.arms import (
    estimate as estimate,
    identical_to_baseline as identical_to_baseline,
    path_mismatch as path_mismatch,
    same_weights as same_weights,
    unequal_work as unequal_work,
)
from pytest_asperf.analysis.guards.bounds import (
    predicted_against_measured as predicted_against_measured,
    roofline_high as roofline_high,
    roofline_low as roofline_low,
    sd_bound as sd_bound,
    token_accounting as token_accounting,
)
from pytest_asperf.analysis.guards.guard import (
    Consequence as Consequence,
    Guard as Guard,
    GuardFinding as GuardFinding,
    Voids as Voids,
)
from pytest_asperf.analysis.guards.outputs import (
    broken_logits as broken_logits,
    counted_decode_errors as counted_decode_errors,
    counted_remote_errors as counted_remote_errors,
    decode_errors as decode_errors,
    degenerate_output as degenerate_output,
    degenerate_tokens as degenerate_tokens,
    divergent_output as divergent_output,
    first_divergence as first_divergence,
    gpu_limits as gpu_limits,
    remote_errors as remote_errors,
)
from pytest_asperf.analysis.guards.serving import (
    ServedWork as ServedWork,
    cached_prompt as cached_prompt,
    client_bound as client_bound,
    context_cut as context_cut,
    failed_examination as failed_examination,
    failed_requests as failed_requests,
    fewer_tokens as fewer_tokens,
    first_chunk_early as first_chunk_early,
    joined_stamps as joined_stamps,
    not_reused as not_reused,
    queueing as queueing,
    restarted as restarted,
    served_requests as served_requests,
    short_ttft as short_ttft,
    tokens_in_chunks as tokens_in_chunks,
)
from pytest_asperf.analysis.guards.surroundings import (
    coefficient_of_variation as coefficient_of_variation,
    counter_disagrees as counter_disagrees,
    dead_counter as dead_counter,
    host_busy as host_busy,
    idle_gaps as idle_gaps,
    idle_rails as idle_rails,
    impure_window as impure_window,
    joules_per_token as joules_per_token,
    rail_coverage as rail_coverage,
    restarted_counter as restarted_counter,
    short_window as short_window,
    spread as spread,
    throttled as throttled,
)
from pytest_asperf.analysis.guards.timed_work import (
    MOST_MEAN_KLD as MOST_MEAN_KLD,
    MOST_REPEATED as MOST_REPEATED,
    MOST_REPEATED_WHOLE as MOST_REPEATED_WHOLE,
    baseline_drifts as baseline_drifts,
    delayed_tokens as delayed_tokens,
    differ as differ,
    drift_limit as drift_limit,
    ignored_context as ignored_context,
    impossible_gain as impossible_gain,
    kld as kld,
    klds as klds,
    knows_nothing as knows_nothing,
    lossless as lossless,
    one_answer as one_answer,
    other_among_users as other_among_users,
    other_answers as other_answers,
    other_logits as other_logits,
    other_if_sampled as other_if_sampled,
    other_rest as other_rest,
    predicts_nothing as predicts_nothing,
    put_off_work as put_off_work,
    random_answers as random_answers,
    refused_examination as refused_examination,
    repeated_result as repeated_result,
    shortened_answer as shortened_answer,
    skipped_work as skipped_work,
    unchecked_gain as unchecked_gain,
    uncounted_text as uncounted_text,
    unequal_runs as unequal_runs,
    unlikely_answers as unlikely_answers,
    unlikely_choice as unlikely_choice,
    unlike_baseline as unlike_baseline,
    untimed_work as untimed_work,
    usual_kld as usual_kld,
)
