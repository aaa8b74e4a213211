// The keys of a model that stand for others: "preset" and "from".
#pragma once

#include <string>

#include "fp4lab/io/json.h"

namespace fp4lab {

// The members of a model in place of "preset": NAME (presets.h; "d_model" and "sequence" scale it)
// or of "from": CHECKPOINT (the checkpoint's model). Members that stand beside the key win. A model
// with neither key is returned as it is. Throws Error at the key for an unknown name, a file that
// is no checkpoint, and for both keys.
Json WithNamedModel(const Json& model, const std::string& where);

// Erases the members of parts that the model does not have, unless they are among the `stated`
// ones, which ReadModelConfig refuses.
void LeaveOtherPartsAside(const Json& stated, Json* model);

// Whether a model has the key "preset" or "from".
bool IsNamedModel(const Json& model);

// The key "start" of a run or study; empty if it is absent.
std::string ReadStartKey(JsonObject* object);

// The member "model" for ReadModelConfig. The members that it leaves out are those of the
// checkpoint `start`, if there is one; but a model with the key "layers" states all of its members,
// as ToJson writes them.
Json ModelWithStart(JsonObject* object, const std::string& start);

}  // namespace fp4lab
