// Package policy has a site's own rules, written in CEL, say more or less than scopes do. It asks nobody and writes
// nothing.
//
//	the rules of a configuration
//	   │ [Compile]             compile.go: checked, with errors that name the place
//	   ▼
//	[Set]
//	   │ [Set.Request]         judgement.go: what the rules say of a request by itself
//	   ▼
//	[Judgement]                and what that left open
//	   │ [Judgement.Resource]  input.go: of a resource, no more is read than rules look at
//	   ▼
//	[Decision]                 deny wins over allow; nothing leaves it to the scopes
//
// A rule that fails does what is safe: deny denies, and allow does not allow.
//
// References: Common Expression Language (https://cel.dev).
package policy
