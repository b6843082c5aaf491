// Package judge decides whether a token's rights cover a resource, and how policies change that decision.
//
//	judge.go     each resource is judged by the grants of package access, with those on which it depends
//	policies.go  and by policies, which come before scopes
//
// It is the only one who decides about resources. What it is not sure of, it refuses.
package judge
