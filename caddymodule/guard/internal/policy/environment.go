package policy

import (
	"reflect"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/ext"
)

const (
	// maxCost is how much an evaluation may cost, in CEL's units: about what it takes to look at a thousand codings.
	maxCost = 100_000
	// maxLength is how long an expression may be, in characters.
	maxLength = 10_000
	// interruptEvery is after how many steps of a loop the context is asked whether it is done.
	interruptEvery = 100
)

// environment is what expressions may use. Variables and their fields have types, so that a wrong name is found when
// the rule is compiled. Of a resource that is unknown: its elements depend on its type.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		ext.NativeTypes(ext.ParseStructTags(true), reflect.TypeFor[Token](), reflect.TypeFor[Request]()),
		cel.Variable("token", cel.ObjectType("policy.Token")),
		cel.Variable("request", cel.ObjectType("policy.Request")),
		cel.Variable("now", cel.TimestampType),
		cel.Variable(resourceName, cel.MapType(cel.StringType, cel.DynType)),
		cel.OptionalTypes(),
		cel.DefaultUTCTimeZone(true),
		cel.ParserExpressionSizeLimit(maxLength),
		cel.ASTValidators(cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals(), cel.ValidateRegexLiterals()),
		ext.Strings(),
		ext.Network(),
	)
})
