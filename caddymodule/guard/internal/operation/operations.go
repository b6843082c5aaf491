package operation

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/caddy-fhir/caddy-fhir/caddymodule/guard/internal/message"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart"
	"github.com/caddy-fhir/caddy-fhir/caddymodule/smart/interaction"
)

// Reach says how far scopes must reach for an operation, and so how much of it is judged.
type Reach string

const (
	// TokenReach is for operations that any valid token may call. Request and answer pass.
	TokenReach Reach = "token"
	// InstanceReach is for those that take a scope which covers the resource on which they are called. The answer passes,
	// since it is about that resource alone. Called on a type or the system they need what [WholeReach] does.
	InstanceReach Reach = "instance"
	// PatientReach is for those that take any scope about the type, which must cover the resource if they are called on
	// one. Each resource of the answer is judged as one that was asked for by itself.
	PatientReach Reach = "patient"
	// WholeReach is for those that take a scope about all resources of the type, or of all types if they are called on
	// the system. The answer passes.
	WholeReach Reach = "whole"
	// NoReach is for those that nobody may call.
	NoReach Reach = "off"
)

// Operation is an operation that may be called.
type Operation struct {
	// Name is that in the path, with its dollar sign, such as $everything.
	Name string
	// Reach says how far scopes must reach.
	Reach Reach
	// Permission is what the scopes must permit on the type, and with [PatientReach] on the type of each resource of the
	// answer. With one of c, u and d the operation changes something, and is called by POST only.
	Permission smart.Permission
	// Types are the types on which it may be called. Empty: on all, and on the system.
	Types []string
}

// Operations are those that may be called, by name. All others are refused.
type Operations map[string][]Operation

// operationExport is decided by rules of its own: see [message.export].
const operationExport = "$export"

// delivering are operations that hand over what a Subscription of somebody else's sends, or have it sent, or have a message
// carried out. However a site lists them, they take scopes to read and search everything.
var delivering = map[string]bool{
	"$events": true, "$get-ws-binding-token": true, "$process-message": true, "$trigger-subscription": true,
}

// defaultOperations are those that a site does not set.
var defaultOperations = Operations{
	"$everything":   {{Name: "$everything", Reach: PatientReach, Permission: message.ReadSearch, Types: []string{"Patient", "Encounter"}}},
	"$lastn":        {{Name: "$lastn", Reach: PatientReach, Permission: message.ReadSearch, Types: []string{"Observation"}}},
	"$docref":       {{Name: "$docref", Reach: PatientReach, Permission: message.ReadSearch, Types: []string{"DocumentReference"}}},
	"$validate":     {{Name: "$validate", Reach: PatientReach, Permission: smart.Create | smart.Update}},
	"$meta":         {{Name: "$meta", Reach: InstanceReach, Permission: smart.Read}},
	operationExport: {{Name: operationExport, Reach: WholeReach, Permission: message.ReadSearch, Types: []string{"", "Patient", "Group"}}},

	"$expand":              terminologyOperation("$expand", "ValueSet"),
	"$validate-code":       terminologyOperation("$validate-code", "ValueSet", "CodeSystem"),
	"$batch-validate-code": terminologyOperation("$batch-validate-code", "ValueSet"),
	"$lookup":              terminologyOperation("$lookup", "CodeSystem"),
	"$subsumes":            terminologyOperation("$subsumes", "CodeSystem"),
	"$find-matches":        terminologyOperation("$find-matches", "CodeSystem"),
	"$translate":           terminologyOperation("$translate", "ConceptMap"),
	"$versions":            terminologyOperation("$versions", ""),
}

func terminologyOperation(name string, types ...string) []Operation {
	return []Operation{{Name: name, Reach: TokenReach, Types: types}}
}

// NewOperations returns the default operations with a site's own: what it says of a name takes the place of the default.
func NewOperations(own ...Operation) Operations {
	o := maps.Clone(defaultOperations)
	for _, op := range own {
		delete(o, op.Name)
	}
	for _, op := range own {
		o[op.Name] = append(o[op.Name], op)
	}
	return o
}

// Find is the operation that an interaction calls.
func (o Operations) Find(i interaction.Interaction) (Operation, bool) {
	if o == nil {
		o = defaultOperations
	}
	for _, op := range o[i.Operation] {
		if len(op.Types) == 0 || slices.Contains(op.Types, i.Type) {
			return op, op.Reach != NoReach
		}
	}
	return Operation{}, false
}

// Changes reports whether the operation changes what is stored, and so must not be a GET (R4 operations.html#3.2.0.1).
func (op Operation) Changes() bool { return op.Permission&^message.ReadSearch != 0 }

var errOperationLine = errors.New("want <$name> patient|instance|whole <cruds> [<Type>...], <$name> token [<Type>...] or <$name> off")

// ParseOperation reads what a site says of an operation:
//
//	<$name> patient|instance|whole <cruds> [<Type>...]
//	<$name> token [<Type>...]
//	<$name> off
func ParseOperation(words ...string) (Operation, error) {
	if len(words) < 2 {
		return Operation{}, errOperationLine
	}
	op := Operation{Name: words[0], Reach: Reach(words[1])}
	if i, err := interaction.Parse("GET", op.Name, "", nil); err != nil || i.Operation != op.Name {
		return op, fmt.Errorf("%q is no name of an operation: %w", op.Name, errOperationLine)
	}
	if op.Name == operationExport && op.Reach != NoReach {
		return op, errors.New("$export takes system scopes over whole types, which cannot be changed: off alone may be said of it")
	}
	return op.with(words[2:])
}

// with reads the words behind the reach.
func (op Operation) with(words []string) (Operation, error) {
	switch op.Reach {
	case TokenReach:
	case NoReach:
		if len(words) > 0 {
			return op, errOperationLine
		}
	case InstanceReach, PatientReach, WholeReach:
		if len(words) == 0 {
			return op, errOperationLine
		}
		scope, ok := smart.ParseResourceScope("user/*." + words[0])
		if !ok || scope.Query != "" {
			return op, fmt.Errorf("%q are no permissions: %w", words[0], errOperationLine)
		}
		op.Permission, words = scope.Permission, words[1:]
	default:
		return op, fmt.Errorf("%q: %w", op.Reach, errOperationLine)
	}
	for _, name := range words {
		if !interaction.IsType(name) {
			return op, fmt.Errorf("%q is no resource type of FHIR R4", name)
		}
		op.Types = append(op.Types, name)
	}
	return op, nil
}
