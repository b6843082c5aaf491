// Package judge says of resources whether a token's rights cover them, and of requests what the site's rules make of them.
//
//	judge.go     each resource is judged by the grants of package access, with those on which it depends
//	policies.go  and by the site's rules, which come before scopes
//
// It is the only one who decides about resources. What it is not sure of, it refuses.
package judge
