// Networks: a graph of operations on named values, and sessions that run it on the host or on a modelled
// tiled machine.
#pragma once

#include <tessera/communicator.h>
#include <tessera/machine.h>
#include <tessera/optimizers.h>
#include <tessera/pipeline.h>
#include <tessera/run_cost.h>
#include <tessera/sparse.h>
#include <tessera/spiking.h>
#include <tessera/structured.h>
#include <tessera/tensor_type.h>
#include <tessera/types.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tessera::graph {

using Attribute = std::variant<int64_t, double, std::string, std::vector<int64_t>>;
using Attributes = std::map<std::string, Attribute, std::less<>>;

using ValueId = uint32_t;
class Graph;
struct Operation;

/// A value of a graph, for expressions. The graph must outlive it.
struct Value {
  Graph* graph = nullptr;
  ValueId id = 0;

  Graph& owner() const;            ///< the value's graph; throws UsageError if there is none
  const TensorType& type() const;  ///< throws UsageError for a value without a graph
  const Shape& shape() const { return type().shape; }
};

/// The properties of a graph's value.
struct ValueInfo {
  std::string name = {};  ///< unique
  Kind kind = Kind::result;
  TensorType type = {};
  Initial initial = {};               ///< initial contents of parameters and state
  std::optional<uint32_t> node = {};  ///< position of the node that computes it
  /// For gradients and optimizers' state: the parameter; for sharded values: the value whose layout their
  /// elements follow.
  std::optional<ValueId> belongs = {};
  bool offloaded = false;  ///< whether it lies in streaming memory where a machine has tiles
  bool divided = false;    ///< whether each replica on tiles keeps an equal part of a parameter
};

/// An operation applied to values.
struct Node {
  const Operation* operation = nullptr;
  std::vector<ValueId> inputs = {};
  Attributes attributes = {};
  std::vector<ValueId> outputs = {};
  bool backward = false;  ///< computes gradients or updates
  /// For a node that computes a gradient: a result of the operation whose gradient it is.
  std::optional<ValueId> gradient_of = {};
  std::shared_ptr<const Graph> body = {};  ///< for a call or a loop: the function

  /// Throw Error for an attribute of another type, and for a missing attribute without a default.
  int64_t integer(std::string_view name, std::optional<int64_t> otherwise = {}) const;
  double number(std::string_view name, std::optional<double> otherwise = {}) const;
  std::string text(std::string_view name, std::optional<std::string> otherwise = {}) const;
  const std::vector<int64_t>& list(std::string_view name) const;
};

/// New contents of a parameter or state at the end of a run.
struct Assignment {
  ValueId state = 0;
  ValueId value = 0;
};

/// Properties of one call of a function.
struct Call {
  /// Number of the call for random choices, from 1: calls with the same number drop out the same elements.
  /// Calls that are given no number get different numbers.
  std::optional<uint32_t> number = {};
  /// Stage of the call. A machine's chips are divided equally among the stages of a graph; a stage's calls
  /// run on its chips, which hold the weights that these calls are the first to take. All other operations,
  /// including gradients and updates, run where their weights and inputs are; within a loop with a stage, all
  /// operations without another stage run on the loop's chips.
  std::optional<uint32_t> stage = {};
  /// Whether only the call's inputs are kept for the gradient, which computes the other values again, with
  /// the same random numbers. On tiles, values of calls that run twice may be placed in another way, which
  /// can change the last bits of results.
  bool recompute = false;
};

/// How the passes of a loop take the inputs of its body, and how the loop's results follow from the outputs;
/// inputs and outputs are given by their names.
struct Loop {
  uint32_t count = 1;
  /// Inputs of which each pass takes its own rows: the value has the rows of all passes, one pass after the
  /// other, or one element per pass if the input is a scalar. All other inputs are the same for all passes.
  std::set<std::string> indexed = {};
  /// Maps an input to the output of the previous pass that it takes; the first pass takes the given value.
  std::map<std::string, std::string> carried = {};
  /// Outputs whose results hold the rows of all passes; and outputs that are summed over the passes, times
  /// `scale`. Of all other outputs, the loop returns the last pass's value.
  std::set<std::string> stacked = {};
  std::set<std::string> summed = {};
  double scale = 1;
  /// Whether the passes run from the last to the first.
  bool reversed = false;
  std::optional<uint32_t> stage = {};  ///< as Call::stage
  /// How passes go through the stages of the body. Results are the same, bit for bit. Nothing may be carried
  /// from pass to pass unless the pipeline is sequential and recomputes nothing.
  Pipeline pipeline = {};
  /// Summed outputs whose sums are FP32, whatever the outputs' types are.
  std::set<std::string> summed_in_f32 = {};
};

/// The memory budget of a graph that stands for what the machine has (Graph::set_memory_budget).
inline constexpr uint64_t kMachineMemory = 0;

/// A network: operations in the order in which they run, on values of fixed shapes. Copies of a graph have
/// the same ids.
class Graph {
 public:
  /// Throw UsageError for a name that is taken, and shapes that are empty, too large or have too many
  /// dimensions.
  Value input(std::string name, Shape shape, Type type = Type::f32);
  Value input(std::string name, TensorType type);
  Value parameter(std::string name, Shape shape, const Initial& initial = {}, Type type = Type::f32);
  /// A sparse matrix; with a capacity its pattern may change from run to run.
  Value sparse_parameter(std::string name, Pattern pattern, const Initial& initial = {},
                         Type type = Type::f32, std::optional<uint64_t> capacity = {});
  Value state(std::string name, TensorType type, const Initial& initial = {},
              std::optional<Value> belongs_to = {});
  /// Also throws UsageError for values that an integer type cannot hold. So do sessions, and initial_state(),
  /// for parameters, state and inputs that are given in FP32.
  Value constant(std::string name, Shape shape, std::vector<float> values, Type type = Type::f32);
  /// Keeps a parameter, a parameter's state, or a sum over the passes of a loop in the streaming memory of
  /// the chips on which it would otherwise lie. Each operation, also in the bodies of loops, brings the value
  /// to the tiles before it reads it, and writes it back after it has set it; calls bring the values that
  /// they pass. A host has one memory, so nothing changes there; sessions on other machines without streaming
  /// memory throw UsageError. Throws UsageError for other values. Calls, loops and repeat_for_micro_batches()
  /// throw UsageError if their functions would have such a sum inside.
  void offload(Value value);
  /// Whether values in streaming memory are brought to the tiles ahead of time, while the operations since
  /// the previous fetch are computed, for which tiles need memory for both; otherwise each operation waits
  /// for its inputs.
  void set_prefetch(bool prefetch) { prefetch_ = prefetch; }
  bool prefetch() const { return prefetch_; }
  /// Limits the memory that the program of a graph with gradients, of one replica, takes to a number of bytes
  /// of each tile, or of a host in all, or to kMachineMemory. Sessions and estimates then compute as few
  /// calls and stages again in the backward pass as fit: first calls, those that take the least predicted
  /// time for each byte that they save, then stages of pipelines that have several micro-batches in flight.
  /// Call::recompute and Pipeline::recomputed count as well. As with Call::recompute, values may be
  /// placed in another way on tiles, which can change the last bits of results. Sessions and estimates throw
  /// UsageError if a number of bytes does not suffice; what a machine lacks is in RunCost::overflow.
  void set_memory_budget(std::optional<uint64_t> bytes) { memory_budget_ = bytes; }
  std::optional<uint64_t> memory_budget() const { return memory_budget_; }
  /// Lets each replica keep an equal part of a parameter; the replicas gather the parts before each operation
  /// or call that takes the parameter. A host keeps the whole parameter. Throws UsageError for other values,
  /// and for parameters of integers, of one element, or with a pattern that may change.
  void shard(Value parameter);

  /// Applies an operation by its name. Throws UsageError, naming operation and value, for inputs or
  /// attributes that it does not take.
  std::vector<Value> apply(std::string_view operation, const std::vector<Value>& inputs,
                           Attributes attributes = {});
  /// Applies the operation of a node, with its attributes and function.
  std::vector<Value> apply(const Node& like, const std::vector<Value>& inputs);
  /// Calls a function, which is a graph without parameters and state: the values of `inputs` replace the
  /// function's inputs, in their order. Returns the function's outputs in the order of their names. All calls
  /// of one function share its code; later additions to the function do not affect them. A function takes
  /// weights as inputs, so a repeated block is one function called with different parameters. Random numbers
  /// differ between calls. Throws UsageError for values whose types differ from the types of the function's
  /// inputs.
  std::vector<Value> call(const std::shared_ptr<const Graph>& function, const std::vector<Value>& inputs,
                          const Call& how = {});
  /// Runs a function several times; each pass is like a call. Random numbers differ between passes, and
  /// between loops and calls. Throws UsageError as call() does, for names that the function lacks, and for
  /// sparse values that differ between passes.
  std::vector<Value> loop(const std::shared_ptr<const Graph>& body, const std::vector<Value>& inputs,
                          const Loop& how);
  /// The inputs in their order.
  std::vector<ValueId> inputs() const;
  /// Makes a value an output of each run, under a name that no input has.
  void output(std::string name, Value value);
  /// Throws UsageError if there is no such output.
  void replace_output(const std::string& name, Value value);
  void remove_output(const std::string& name) { outputs_.erase(name); }
  /// Sets a parameter or state at the end of each run. Throws UsageError if it is set already.
  void assign(Value state, Value value);
  /// Moves all operations so far into the body of a loop over `count` micro-batches. The inputs of these
  /// operations hold the rows of all micro-batches from now on. Returns the values `summed`, summed over
  /// micro-batches and times `scale`; outputs become such sums as well, and state is set to its value after
  /// the last micro-batch. Results of mean_over_step() are computed before the loop. Other results are no
  /// longer values of this graph. With `in_f32`, the values returned are FP32, and 16-bit values are added to
  /// them in FP32.
  std::vector<Value> repeat_for_micro_batches(uint32_t count, const std::vector<Value>& summed = {},
                                              double scale = 1, const Pipeline& pipeline = {},
                                              bool in_f32 = false);
  /// Lets equal parts of a machine run the graph side by side, each on its own rows: from now on, inputs and
  /// outputs that are not scalars hold the rows of all replicas, one replica after the other. Scalar outputs
  /// have the first replica's values.
  void replicate(uint32_t count);
  /// Lets stage s run on part places[s] of a machine's chips, which are divided equally among the parts;
  /// several stages may share a part. Without this call, each stage has a part of its own. Throws UsageError
  /// for an empty list, and for parts without a stage.
  void place_stages(std::vector<uint32_t> places);
  const std::vector<uint32_t>& stage_places() const { return places_; }
  /// Divides the graph into stages of whole layers, instead of those that calls and loops name: stage s
  /// begins with the layer of parameters[s − 1], stage 0 with the first layer. A layer begins with an
  /// operation that takes parameters which no operation before takes, and has what follows, and its gradients
  /// and updates. Throws UsageError for values that no forward operation takes as parameters, and for layers
  /// that are not in their order.
  void begin_stages(const std::vector<Value>& parameters);
  const std::vector<ValueId>& stage_begins() const { return stage_begins_; }
  /// Lets sessions and estimates divide the graph into this number of stages of whole layers, which take
  /// about equal predicted time, as far as their bytes fit; with 1, chips work as one. none: as before.
  /// Throws UsageError for 0, and for more stages than layers; sessions throw it if fusing operations leaves
  /// fewer layers than stages.
  void balance_stages(std::optional<uint32_t> count);
  std::optional<uint32_t> balanced_stages() const { return balanced_stages_; }
  uint32_t replicas() const { return replicas_; }
  /// Sets how products on tiles, including products in functions and loops, store partial sums. Throws
  /// UsageError for a type that PartialSums does not allow.
  void set_partial_sums(const PartialSums& sums);
  const PartialSums& partial_sums() const { return partial_sums_; }
  /// The type of the array for an input or output: with the rows of all replicas, or of the given number of
  /// replicas.
  TensorType bound_type(ValueId id) const { return bound_type(id, replicas_); }
  TensorType bound_type(ValueId id, uint32_t replicas) const;

  Value value(ValueId id) { return {this, id}; }
  /// The value with this name. Throws UsageError if there is none.
  Value find(std::string_view name);
  bool contains(std::string_view name) const { return names_.contains(name); }
  const ValueInfo& info(ValueId id) const { return values_.at(id); }
  const TensorType& type(ValueId id) const { return values_.at(id).type; }
  const std::deque<ValueInfo>& values() const { return values_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  const std::map<std::string, ValueId>& outputs() const { return outputs_; }
  const std::vector<Assignment>& assignments() const { return assignments_; }
  void rename(Value value, std::string name);

  // Rewriting, for transforms. Positions of nodes change, ids of values stay.
  /// Replaces the nodes, which must compute the same results in a valid order.
  void set_nodes(std::vector<Node> nodes);
  /// Marks the operations from position `first` on as computing gradients or updates.
  void mark_backward(uint32_t first);
  /// Marks the operations from position `first` on as computing gradients of the operation that computes
  /// `of`.
  void mark_gradients(uint32_t first, ValueId of);
  /// Calls `add`, and inserts the operations that `add` applies before a node. Returns their number.
  uint32_t insert_before(uint32_t node, const std::function<void()>& add);
  /// Lets the operation that computes `by` compute `result` instead, a value of the same type, which all
  /// operations that use `by` then use. The operation that computed `result` before must be erased.
  void replace(Value result, Value by);
  /// Erases the nodes whose element of `nodes` is true; nothing may use their results.
  void erase(const std::vector<bool>& nodes);
  /// Replaces the function of a call or a loop, and its attributes, by a function with the same inputs and
  /// additional outputs; returns the values of the additional outputs.
  std::vector<Value> extend(uint32_t node, const std::shared_ptr<const Graph>& function,
                            Attributes attributes);
  /// Releases the arrays of initial values, once a session has copied them.
  void drop_initial_values();
  /// Contents of a constant.
  const std::vector<float>& contents(ValueId id) const { return *values_.at(id).initial.values; }

 private:
  ValueId add(ValueInfo info);
  void require_own(Value value, std::string_view what) const;
  void require_computed(Value value) const;
  std::vector<Value> add(Node node, const std::vector<Value>& inputs);
  void number_draws(Node& node);
  void number_nodes();
  struct MicroBatch;
  Graph as_function(std::set<ValueId> taken) const;
  std::vector<Node> separate_means(uint32_t count, std::vector<MicroBatch>& before);
  std::vector<Value> repeat(MicroBatch&& each);

  std::deque<ValueInfo> values_;  ///< references stay valid while values are added
  std::vector<Node> nodes_;
  std::map<std::string, ValueId> outputs_;
  std::map<std::string, ValueId, std::less<>> names_;
  std::vector<Assignment> assignments_;
  /// Copies of the functions that calls name.
  std::map<std::shared_ptr<const Graph>, std::shared_ptr<const Graph>> functions_;
  uint32_t next_call_ = 1U << 31;  ///< the number of the next call that is given none
  uint32_t replicas_ = 1;
  std::vector<uint32_t> places_;
  std::vector<ValueId> stage_begins_;
  std::optional<uint32_t> balanced_stages_;
  PartialSums partial_sums_;
  bool prefetch_ = false;
  std::optional<uint64_t> memory_budget_;
  std::set<ValueId> replicated_;  ///< inputs that hold the rows of all replicas
};

/// The graph as text, a line per value and operation.
std::string to_string(const Graph& graph);

// Operations. Shapes and broadcasting as in PyTorch. Sums, differences, products, maximum, minimum and
// comparisons also take u32, modulo 2^32.

/// x · Wᵀ + b, with x [..., k], a weight W [m, k], dense or sparse, and b [m].
Value linear(Value x, Value weight, std::optional<Value> bias = {});
/// a · b, with a [..., m, k] and b [..., k, n] with the same leading dimensions; b may also be a single
/// matrix for all matrices of a. A transposed factor is given as [..., k, m] or [..., n, k]. Either factor
/// may be a sparse matrix, a single one for all matrices of the other factor.
Value matmul(Value a, Value b, bool transpose_a = false, bool transpose_b = false);
Value relu(Value x);
/// gelu is x/2 · (1 + erf(x / √2)) (Hendrycks & Gimpel 2016); gelu_tanh is its approximation by tanh.
Value gelu(Value x);
Value gelu_tanh(Value x);
/// x · sigmoid(x), also called swish.
Value silu(Value x);
/// x where x ≥ 0, else slope · x.
Value leaky_relu(Value x, double slope = 0.01);
/// x where x > 0, else alpha · (exp(x) − 1).
Value elu(Value x, double alpha = 1);
/// log(1 + exp(beta · x)) / beta; x where beta · x is above the threshold.
Value softplus(Value x, double beta = 1, double threshold = 20);
/// hard_sigmoid is x + 3 clipped to [0, 6], divided by 6; hard_swish is x · hard_sigmoid(x).
Value hard_sigmoid(Value x);
Value hard_swish(Value x);
Value tanh(Value x);
Value sigmoid(Value x);
Value exp(Value x);
Value log(Value x);
Value sqrt(Value x);
Value rsqrt(Value x);
Value sin(Value x);
Value cos(Value x);
Value erf(Value x);
/// x to the power of `exponent`; NaN for a negative x if the exponent is not an integer.
Value pow(Value x, double exponent);
Value square(Value x);
Value abs(Value x);
Value reciprocal(Value x);
Value operator-(Value x);
Value operator+(Value a, Value b);
Value operator-(Value a, Value b);
Value operator*(Value a, Value b);
Value operator/(Value a, Value b);
Value operator+(Value a, double b);
Value operator*(Value a, double b);
Value maximum(Value a, Value b);
Value minimum(Value a, Value b);
/// x limited to [low, high]; one of the bounds may be missing. NaN stays NaN.
Value clip(Value x, std::optional<double> low, std::optional<double> high = {});
/// Comparisons: 1 where they hold, else 0, in the type of the operands.
Value equal(Value a, Value b);
Value not_equal(Value a, Value b);
Value less(Value a, Value b);
Value less_equal(Value a, Value b);
/// a where the condition is not 0, else b.
Value where(Value condition, Value a, Value b);
/// Reductions over all dimensions, or over `dims`; a negative dimension counts from the end. With keepdim,
/// reduced dimensions stay with size 1.
Value sum(Value x);
Value sum(Value x, const std::vector<int>& dims, bool keepdim = false);
Value mean(Value x);
Value mean(Value x, const std::vector<int>& dims, bool keepdim = false);
Value max(Value x);
Value max(Value x, const std::vector<int>& dims, bool keepdim = false);
Value min(Value x);
Value min(Value x, const std::vector<int>& dims, bool keepdim = false);
/// The first position of the maximum along a dimension, u32.
Value argmax(Value x, int dim, bool keepdim = false);
/// The sum of each element and all elements before it along a dimension.
Value cumsum(Value x, int dim);
/// The mean or sum of each element over all replicas of a graph, or over each group of `group` consecutive
/// replicas, as batch normalisation over several replicas needs (Ying et al. 2018, arXiv 1811.06992); x
/// itself in a graph without replicas. Gradients are the mean or sum of the gradients in the group. Running a
/// graph throws UsageError if the groups do not divide its replicas.
Value mean_over_replicas(Value x, uint32_t group = 0);
Value sum_over_replicas(Value x, uint32_t group = 0);
/// The mean of x over the micro-batches and replicas of a training step; x itself in a graph without
/// micro-batches and replicas. If a loss is a sum divided by mean_over_step() of its number of terms, then
/// its mean over the step is the sum of all terms divided by their total number. It has no gradient, so x
/// must not depend on parameters that are trained.
Value mean_over_step(Value x);
/// x itself, as if it were a constant: nothing has a gradient through it.
Value stop_gradient(Value x);
/// The transpose of a matrix.
Value transpose(Value x);
Value reshape(Value x, Shape shape);
/// Elements [begin, end) of a dimension.
Value slice(Value x, uint32_t dim, uint32_t begin, uint32_t end);
Value concatenate(const std::vector<Value>& values, uint32_t dim);
/// Consecutive slices along a dimension, with sizes[0], sizes[1], … elements.
std::vector<Value> split(Value x, const std::vector<uint32_t>& sizes, uint32_t dim);
/// Adds `before` elements at the beginning of a dimension and `after` elements at its end, all equal to
/// `value`.
Value pad(Value x, uint32_t dim, uint32_t before, uint32_t after, double value = 0);
/// x in a larger shape: dimensions of size 1 are repeated.
Value expand(Value x, Shape shape);
/// The dimensions in another order: dimension i of the result is dimension dims[i].
Value permute(Value x, const std::vector<int>& dims);
/// y[..., i] = x[..., permutation[i]]
Value permute_features(Value x, const std::vector<uint32_t>& permutation);
/// y[..., i] = x[..., places[i]]; elements may be taken several times, or not at all.
Value select_features(Value x, const std::vector<uint32_t>& places);
/// y[..., i] = x[..., i · neighbours] + … + x[..., i · neighbours + neighbours − 1]
Value sum_neighbours(Value x, uint32_t neighbours);
/// y[..., :] = weight[ids[...], :] with u32 ids and a weight [rows, features], dense or sparse, which may be
/// the weight of products as well; on tiles a sparse weight is made dense for it. The row `padding` has a
/// gradient of 0. A run throws Error for an id that is not below the number of rows; so do index_select(),
/// scatter_add() and gather() for an index that is not below the dimension's size.
Value embedding(Value ids, Value weight, std::optional<uint32_t> padding = {});
/// The elements of a dimension at the indices `ids`, a list of u32.
Value index_select(Value x, int dim, Value ids);
/// The adjoint of index_select(): element i of the dimension, of `size` elements, is the sum of the values
/// with index i.
Value scatter_add(Value values, int dim, Value ids, uint32_t size);
/// y[…, i, …] = x[…, ids[…, i, …], …]: the ids are indices along one dimension, and have x's shape in all
/// other dimensions.
Value gather(Value x, int dim, Value ids);
/// Converts to f32, f16, bf16 or u32. A conversion to u32 truncates fractions; negative numbers and NaN
/// become 0, and numbers that are too large become 2^32 − 1.
Value cast(Value x, Type type);
/// Rounds stochastically to f16 or bf16: to one of the two neighbouring numbers, so that the expected result
/// is x. `step` is a u32 scalar, and the choice a function of (seed, step, operation, element). Numbers that
/// the type has stay unchanged. Numbers between the type's largest number and the next power of two may
/// become infinity.
Value stochastic_cast(Value x, Type type, Value step, uint64_t seed = 0);
Value softmax(Value x, int dim = -1);
Value log_softmax(Value x, int dim = -1);
/// Arguments of scaled dot-product attention besides queries, keys and values.
struct Attention {
  uint32_t heads = 1;
  uint32_t kv_heads = 0;  ///< number of heads of keys and values, shared by the heads of queries; 0: `heads`
  std::optional<double> scale = {};  ///< none: 1 / √(size of a head)
  /// Query i attends to keys i + offset − left to i + offset + right; none: no limit. Causal: right = 0.
  std::optional<uint32_t> left = {}, right = {};
  int64_t offset = 0;
  /// For packed sequences, u32 [..., queries] and [..., keys]: queries attend to keys with the same id.
  /// Queries with id 0 attend to no key, and their result is 0.
  std::optional<Value> query_ids = {}, key_ids = {};
  /// Instead of ids: u32 or i32 [...], the number of keys of each sequence; later keys are padding, to which
  /// no query attends. A negative number counts as 0.
  std::optional<Value> lengths = {};
  /// Added to the scaled scores: [sequences, heads, queries, keys]; all dimensions but the last may be 1.
  std::optional<Value> bias = {};
  /// Probability with which an attention probability is dropped, with the mask of dropout() for [sequences,
  /// heads, queries, keys]; requires `step`.
  double dropout = 0;
  std::optional<Value> step = {};
  uint64_t seed = 0;
};

/// softmax(scale · q · kᵀ + bias) · v for each head (Vaswani et al. 2017), with queries [..., queries, heads
/// · size], keys [..., keys, kv_heads · size] and values [..., keys, kv_heads · value size]: [..., queries,
/// heads · value size]. On the host it takes one pass over the keys (Dao et al. 2022), without a matrix of
/// scores, and skips blocks of queries and keys that are fully masked.
Value attention(Value q, Value k, Value v, const Attention& of);
/// (x − mean) / √(variance + epsilon) · weight + bias over the last dimension, as in PyTorch; weight and bias
/// are [features].
Value layer_norm(Value x, std::optional<Value> weight = {}, std::optional<Value> bias = {},
                 double epsilon = 1e-5);
/// x / √(mean of x² + epsilon) · weight over the last dimension.
Value rms_norm(Value x, std::optional<Value> weight = {}, double epsilon = 1e-6);
/// Cosines and sines of the angles of positions (Su et al. 2021): constants of [positions, features / 2].
struct RotaryTables {
  Value cosines;
  Value sines;
};
RotaryTables rotary_tables(Graph& graph, uint32_t positions, uint32_t features, double base = 10000);
/// Rotates pairs of features of x [..., positions, features] by the angle of their position: features i and i
/// + features / 2, or neighbouring features if `interleaved`.
Value rotary(Value x, const RotaryTables& tables, bool interleaved = false);

/// How the losses of the rows are reduced to one.
enum class LossReduction : uint8_t {
  mean,  ///< the sum divided by the total weight of the rows that are not ignored
  sum,
  none,  ///< a loss for each row
};
struct CrossEntropyOptions {
  std::optional<Value> weight = {};      ///< weight of each class: [classes]
  std::optional<uint32_t> ignored = {};  ///< label of rows that are left out
  double smoothing = 0;                  ///< fraction of each target that is spread over all classes
  LossReduction reduction = LossReduction::mean;
};
/// −log softmax(logits)[label] per row, as in PyTorch. The target is labels, u32 [rows], or the probability
/// of each class, [rows, classes] like the logits.
Value cross_entropy(Value logits, Value target, const CrossEntropyOptions& options = {});
/// Mean of (x − target)².
Value mean_squared_error(Value x, Value target);
/// Zeroes elements with probability `p` and divides the others by 1 − p; `step` is a u32 scalar, and
/// the mask a function of (seed, step, operation, element).
Value dropout(Value x, double p, Value step, uint64_t seed = 0);

/// The form of a structured map in a graph.
enum class Form : uint8_t {
  fused,    ///< one operation, which merges its factors
  unfused,  ///< the operations of plain PyTorch, one after the other (Shekofteh et al. 2023)
};

/// "fused", "unfused"; form_named() throws UsageError, listing the names, for any other name.
std::string_view name_of(Form form);
Form form_named(std::string_view name);

// Structured maps of the last dimension (structured.h). Parameters are matrices: the last dimension named
// below holds all further dimensions of the parameter in structured.h.

/// The twiddle is [stacks, nblocks, log₂ N, 2N], or tied [stacks, 4(N − 1)]; if complex, the last dimension
/// is twice as long.
Value butterfly(Value x, Value twiddle, const Butterfly& of, Form form = Form::fused);
/// The weight is [a, d, b·c].
Value kronecker(Value x, Value weight, const Kronecker& of);
/// c is [size]; 0 outputs: `size`.
Value circulant(Value x, Value c, uint32_t outputs = 0);
/// c is [outputs + inputs − 1].
Value toeplitz(Value x, Value c, uint32_t outputs);
/// s, g and b are [stacks, N].
Value fastfood(Value x, Value s, Value g, Value b, const Fastfood& of, Form form = Form::fused);

/// Spikes of whole sequences in a graph, as lists (spiking.h): ids are u16 [steps, batch · capacity], num u32
/// [steps, batch · 2]. The gradient of `ids` has a number for each entry of the lists; numbers beyond the end
/// of a list are unspecified.
struct Spikes {
  Value ids;
  Value num;
  uint32_t batch = 0;

  uint32_t steps() const { return num.shape().front(); }
  uint32_t capacity() const { return ids.type().cols() / batch; }
};

/// Adds the inputs `name`.ids and `name`.num.
Spikes spike_input(Graph& graph, const std::string& name, uint32_t steps, uint32_t batch, uint32_t capacity);

struct SpikingOptions {
  std::vector<uint32_t> capacities = {};  ///< capacity of each layer's lists; none, or 0: all neurons
  bool learns_dynamics = false;           ///< whether decays and thresholds have gradients
  /// Scalars that may change from run to run, as in SpikingControl: the threshold is f32, the other scalars
  /// are u32. With the seed, the step determines which spikes full lists drop.
  std::optional<Value> gradient_threshold = {};
  std::optional<Value> most_listed = {};
  std::optional<Value> step = {};
  uint64_t seed = 0;
  double expected_input_activity = 0.02;  ///< fraction of inputs, for planning
  double expected_activity = 0.04;        ///< fraction of neurons that are listed, for planning
  /// Neurons per tile for each layer on tiled machines; none, or 0: as few pairs of neurons per tile as the
  /// number of tiles allows.
  std::vector<uint32_t> neurons_per_tile = {};
};

/// The results of spiking layers.
struct SpikingResults {
  std::vector<Spikes> spikes = {};  ///< one per layer that has spikes
  /// For each of these layers, the numbers of dropped spikes and candidates, u32 [batch, 2].
  std::vector<Value> dropped = {};
  /// Potentials of a last layer without spikes: f32 [steps, batch · neurons].
  std::optional<Value> potentials = {};
};

/// A network of spiking layers over whole sequences, with backpropagation through time. `parameters` has the
/// parameters that parameters_of() lists for each layer, layer after layer, in f32 or a 16-bit type. Throws
/// UsageError for impossible layers, and for values that do not fit them.
SpikingResults spiking(const Spikes& in, const std::vector<SpikingLayer>& layers,
                       const std::vector<Value>& parameters, const SpikingOptions& options = {});

/// Initial contents of the parameters of spiking layers.
struct SpikingInitial {
  double weight = 1;  ///< standard deviation of weights, times √inputs
  double recurrent = 0.2;
  double decay = 0.95;
  double current_decay = 0.9;
  double threshold = 1;
};
/// Adds the parameters of layers, named `name`.0.weight, …: weights have the type `weights`, the others f32.
std::vector<Value> spiking_parameters(Graph& graph, const std::string& name,
                                      const std::vector<SpikingLayer>& layers,
                                      const SpikingInitial& initial = {}, Type weights = Type::f32);

/// The number of steps in which each of the first `neurons` neurons fired: f32 [batch, neurons].
Value spike_counts(const Spikes& spikes, uint32_t neurons);

/// The results of neurons that take currents: f32 [steps, batch, neurons].
struct NeuronValues {
  Value potentials;
  std::optional<Value> spikes = {};  ///< 0 and 1
};

/// Neurons that take currents f32 [steps, batch, neurons], such as the result of a product, instead of lists
/// of spikes, for dense inputs and for activity that is not sparse. `parameters` are, as far as the neurons
/// have them, the decay of potentials, the decay of currents and the threshold, each [1] or [neurons];
/// `recurrent` are weights [neurons, neurons]. On the host only.
NeuronValues spiking_neurons(Value currents, const Neuron& neuron, const std::vector<Value>& parameters,
                             std::optional<Value> recurrent = {});

/// How a result is read from the potentials of a layer without spikes: the potential in the last step, or the
/// maximum or the mean over all steps.
enum class Readout : uint8_t { last, maximum, mean };
/// The readout, f32 [batch, neurons], of potentials [steps, batch · neurons].
Value readout(Value potentials, uint32_t batch, Readout of);

/// Values by name, row-major; for a sparse matrix, the values of its blocks.
using Arrays = std::map<std::string, std::vector<float>>;

/// Arrays in float64.
using WideArrays = std::map<std::string, std::vector<double>>;

/// The reference: evaluates a graph in float64, one operation after the other. Returns the outputs; reads
/// parameters and state from `state`, which has to have all of them, and updates them. Throws UsageError if
/// an array is missing or has another size.
WideArrays evaluate(const Graph& graph, const WideArrays& inputs, WideArrays& state);

/// Initial contents of all parameters and state.
Arrays initial_state(const Graph& graph, uint64_t seed = 0);

struct SessionOptions {
  uint64_t seed = 0;     ///< for random initial contents
  uint32_t threads = 0;  ///< maximum number of threads; 0: one per tile of the host, or default_threads() for
                         ///< a modelled machine
  /// Number of chips of a tiled machine that work as one, for a graph without stages and replicas; 0: the
  /// number that is predicted to be fastest.
  uint32_t on_chips = 0;
  /// On the host, for a graph whose samples (the first dimension) do not depend on each other: the number of
  /// equal parts of the samples for which the graph runs separately, one part per thread, so that values stay
  /// in the thread's caches. 1: all samples at once; 0: the number that is predicted to be fastest where each
  /// of the host's tiles has a thread.
  uint32_t parts = 0;
  /// Whether times on a modelled machine include the transfers of all inputs from its hosts and of all
  /// outputs to them (RunCost::host_io). On the host itself arrays are used in place.
  bool host_io = false;
  /// A file that Session::save_executable() wrote for an equal graph, machine and options; empty: the graph
  /// is placed and compiled.
  std::string executable = {};
  /// The ranks that divide the graph's replicas among them, and on the host also the replicas' stages; each
  /// rank makes a session with an equal graph, machine and seed. none: this process has all replicas.
  std::shared_ptr<Communicator> communicator = {};
};

/// An input or output of a run. The type has the rows of all the session's replicas, and for a sparse output
/// its present pattern.
struct ArrayType {
  std::string name;
  TensorType type;
  bool is_input = false;
};

/// An array for an input or output: contiguous, row-major, of the value's type.
struct Tensor {
  std::string name;
  void* data = nullptr;
  /// Number of elements of the array. If given, a run throws if the value has another number of elements, for
  /// instance because another thread has changed the pattern of a sparse output since arrays().
  std::optional<uint64_t> elements = {};
};

/// A graph lowered into one program for a machine, with its parameters and state. Thread-safe: calls of one
/// session, and of sessions that share its parameters, take turns. In a forked process, calls of a session
/// that another thread was using at the fork throw Error.
///
/// On a machine of several chips, a graph's stages get equal numbers of chips, and so do its replicas. A
/// graph without stages and replicas takes one chip, or several that work as one where that is faster; if it
/// does not fit one chip, whole layers are placed on as few chips as possible.
///
/// With SessionOptions::communicator, rank r of n has an equal part of the replicas, from replica r ·
/// replicas / n on, and results equal the results of one session with all replicas, bit for bit. Arrays have
/// the rows of the rank's own replicas, and scalar outputs have the values of the first of these replicas. On
/// the host, the number of ranks may be a multiple of the number of replicas; then consecutive ranks divide
/// the stages of a replica equally, bind equal inputs, and get all outputs. All ranks have to make the same
/// calls in the same order: constructors, runs, and functions that read or write parameters and state, load
/// files or save them (only rank 0 writes files). Files to load have to be equal; if one rank cannot make a
/// session, load or save, no rank can. If a rank fails in a run, the other ranks throw RankError, and no
/// session of these ranks can run any more. A session that shares the parameters of a session with ranks has
/// the same ranks; if its graph has no replicas, each rank runs the whole graph.
class Session {
 public:
  /// Throws UsageError for operations that the machine does not support, for parts that do not divide the
  /// samples equally, for transfers to a host to which the machine has no link, and for ranks that divide
  /// neither the replicas nor their stages equally. Throws Error for an executable of another graph, machine
  /// or options, or a damaged one, and RankError if ranks differ or another rank throws.
  Session(const Graph& graph, const Machine& machine, const SessionOptions& options = {});
  /// A session of another graph, such as an evaluation, on the machine of `owner`. It reads the owner's
  /// parameters of the same names, which need not be set again, and sees every change of theirs. The graph
  /// must not assign to them. Also throws UsageError if a parameter's type or shape differs from the owner's,
  /// and if the owner itself shares another session's parameters. `executable` is as
  /// SessionOptions::executable.
  Session(const Graph& graph, const Session& owner, const std::string& executable = {});
  ~Session();
  Session(Session&&) noexcept;
  Session& operator=(Session&&) noexcept;

  const Graph& graph() const;
  /// The cost of a run, without running. Costs that depend on integers which only a run computes are expected
  /// costs; costs that depend on integer inputs are computed from `inputs` where these are given. Throws
  /// UsageError for an array that is neither an input nor an output.
  RunCost cost(std::span<const Tensor> inputs = {}) const;
  /// The tile program, in readable form.
  std::string program() const;
  /// The number of compute sets of the tile program; compute sets of a function count once, whatever the
  /// number of its calls.
  uint64_t compute_sets() const;
  /// Whether every tile's memory suffices; otherwise the session cannot run.
  bool fits() const;

  /// The arrays of a run: inputs in their order, then outputs in the order of their names.
  std::vector<ArrayType> arrays() const;
  /// Runs once with the caller's arrays, in place: one for each of the graph's inputs and outputs; throws
  /// UsageError for an array that is missing, given twice, or neither input nor output. If a run throws after
  /// it has begun to change parameters and state, this session and sessions that share its parameters throw
  /// Error for runs, and for reading values that may be half changed, until load() or other functions have
  /// set all of these.
  void run(std::span<const Tensor> arrays);
  /// Runs once with an array for each of arrays(), in that order. For short calls: does not check sizes.
  void run_in_order(std::span<void* const> arrays);
  /// The seconds that a tiled machine would have taken for the last run() or measure(); on a host 0.
  double last_seconds() const;
  /// The bytes that this rank has sent to other ranks in all runs so far, in each run as many as cost()
  /// predicts (RunCost::sent_bytes); 0 without ranks.
  uint64_t sent_bytes() const;
  /// Runs once and returns where the time went: measured on the host, otherwise as cost() says.
  RunCost measure(std::span<const Tensor> arrays);
  /// Runs once with copies of the inputs in FP32, and returns copies of the outputs.
  Arrays run(const Arrays& inputs);

  /// Write and read a parameter or state by name: row-major, or the blocks of a sparse matrix. Integers
  /// beyond 2^24 are rounded to the nearest FP32 number; files keep them exactly.
  void set(const std::string& name, std::span<const float> values);
  std::vector<float> get(const std::string& name) const;
  /// Sets patterns of parameters with a capacity, then several parameters and state; nothing changes if one
  /// of them does not fit.
  void set_state(const Arrays& state, const std::map<std::string, Pattern>& patterns = {});
  Arrays state() const;
  /// The present pattern of a sparse parameter.
  Pattern pattern(const std::string& name) const;
  /// Sets another pattern of a parameter with a capacity. Blocks in both patterns keep their values,
  /// gradients and optimizer's state; new blocks are 0. Throws UsageError for blocks outside the groups of a
  /// convolution whose weight the parameter is.
  void set_pattern(const std::string& name, const Pattern& pattern);

  /// Saves parameters and state in a .safetensors file: a tensor for each, under its name and with its shape.
  /// For a sparse matrix the tensor holds the values of the blocks, and a sparse parameter has its pattern as
  /// `name.crow_indices` and `name.col_indices`. An existing file is only replaced by a complete one.
  /// Parameters of another session are not saved, except the patterns to which this session's state belongs.
  void save(const std::string& path) const;
  /// Reads such a file. Throws Error, and changes nothing, if it lacks a parameter or state, or has another
  /// shape, type or fixed pattern.
  void load(const std::string& path);

  /// Saves the session's compiled program, without parameters, state and changed patterns, for sessions of
  /// equal graphs in other processes (SessionOptions::executable); initial contents may differ. These
  /// sessions lower the graph, but neither search for its placement nor compile it, and give the same results
  /// and costs. An existing file is only replaced by a complete one.
  void save_executable(const std::string& path) const;

  /// Loads parameters only, from the files of a model as other libraries write them: a .safetensors file, or
  /// a folder in the layout of Hugging Face. Arrays are dense, of F32, F16, BF16 or the parameter's own type;
  /// arrays of other names are ignored. Throws Error, and changes nothing, if a parameter is missing, has
  /// another shape, or has non-zeros outside the session's pattern.
  void load_parameters(const std::string& path);
  /// Saves parameters only, in this form, in one file; sparse ones with their zeros.
  void save_parameters(const std::string& path) const;

  struct Impl;

 private:
  std::shared_ptr<Impl> impl_;
};

}  // namespace tessera::graph
