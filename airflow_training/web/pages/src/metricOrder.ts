// In which order metrics are shown: what says most about a training comes first. Pure.

/** One of these words, as people write names: `val_loss`, `eval/loss`, `top-5 accuracy`. */
function word(words: string): RegExp {
  return new RegExp(`(^|[^a-z])(${words})(?![a-z])`, "i");
}

const ORDER: readonly RegExp[] = [
  /^(train(ing)?[^a-z]+)?loss$/i,
  word("loss(es)?(?![^a-z]?scale)|perplexity|ppl|nll|cross_?entropy"),
  word("acc(uracy)?|auc|f1|score|precision|recall|bleu|rouge|ndcg|mrr|iou|miou|map|top_?[0-9]+|error_?rate|wer|psnr|ssim|fid"),
  word("lr|learning_?rate"),
  /(^|[^a-z])(throughput|tflops|mfu)(?![a-z])|(samples|tokens|steps|examples|images|items|sequences|batches|iterations|its?)[^a-z]?(per[^a-z]?s|\/[^a-z]?s)/i,
  /(step|batch|iteration|iter|epoch)s?[^a-z]?(time|seconds|duration|ms)|(time|seconds|ms)[^a-z]?per[^a-z]?(step|batch|iteration)/i,
  word("mem(ory)?|vram|rss"),
  /grad(ient)?s?[^a-z]?norm/i,
];

function kindOf(name: string): number {
  const kind = ORDER.findIndex((each) => each.test(name));
  return kind < 0 ? ORDER.length : kind;
}

/** Losses, scores, learning rate, throughput, time of a step, memory, norm of gradients, then the rest; by alphabet in each. */
export function ordered(names: readonly string[]): string[] {
  return [...names].sort((one, other) => kindOf(one) - kindOf(other) || one.localeCompare(other, "en"));
}

/** Whether less of a metric is better, by its name. */
export function goalOf(metric: string): "max" | "min" {
  return /(^|[^a-z])(loss|error|perplexity|ppl|nll|mse|mae|rmse|wer|fid)(?![a-z])|_loss$/i.test(metric) ? "min" : "max";
}
