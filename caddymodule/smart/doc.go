// Package smart contains the scope grammar of SMART App Launch 2.2 and the rule by which an authorization server grants scopes.
// It imports only the standard library.
//
// The steps of granting:
//
//	"openid patient/*.rs"      the scope parameter of a request
//	   │ [ParseScopes]         RFC 6749 §3.3, strictly; malformed → an error
//	   ▼
//	[openid patient/*.rs]      the caller removes the scopes that it reserves
//	   │ [Grant]               compares with the client's allowed scopes
//	   ▼
//	[patient/Observation.rs]   the scopes of the token, or an [UnlistedError]
//
// [Grant] parses the SMART resource scopes with [ParseResourceScope]. Any other scope is an opaque string, which is granted if
// it is listed.
//
// [ResourceScope.Constraint] parses the query of a resource scope. [ParseParameters] parses the queries of both scopes and
// requests.
//
// References: RFC 6749 §3.3; SMART App Launch 2.2.0, "Scopes for requesting FHIR Resources"
// (https://hl7.org/fhir/smart-app-launch/scopes-and-launch-context.html).
package smart
