// Package smart holds the scope grammar of SMART App Launch 2.2, and the rule by which an authorization server grants
// scopes. It imports only the standard library.
//
// The way through:
//
//	"openid patient/*.rs"      the scope parameter of a request
//	   │ [ParseScopes]         RFC 6749 §3.3, strictly; malformed → an error
//	   ▼
//	[openid patient/*.rs]      the caller takes out the scopes it reserves
//	   │ [Grant]               against the scopes listed for the client
//	   ▼
//	[patient/Observation.rs]   what the token will say, or an [UnlistedError]
//
// [Grant] reads the SMART resource scopes with [ParseResourceScope]. Any other scope is an opaque string, which is
// granted if it is listed.
//
// [ResourceScope.Constraint] reads the query that narrows a resource scope. [ParseParameters] reads the queries of scopes
// and of requests alike.
//
// References: RFC 6749 §3.3; SMART App Launch 2.2.0, "Scopes for requesting FHIR Resources"
// (https://hl7.org/fhir/smart-app-launch/scopes-and-launch-context.html).
package smart
