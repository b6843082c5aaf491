// Package policy judges requests by a site's own rules, written in CEL: the subdirectives `allow` and `deny` of fhir_bearer.
//
//	policy.go   the subdirectives, and the policy that the guard asks: a decision about a request, and the rules that
//	            remain for its resources
//	compile.go  [Compile]: rules are checked, with errors that name the place; the variables of expressions
//
// A rule that cannot be evaluated is applied in the safe direction: a deny rule denies, and an allow rule does not allow.
//
// References: Common Expression Language (https://cel.dev).
package policy
