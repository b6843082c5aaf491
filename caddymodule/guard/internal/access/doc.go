// Package access turns the scopes of a token into grants and decides which grants cover an interaction with a resource. It
// sends no requests and writes nothing.
//
//	the token's scopes, patient and fhirUser
//	   │ [New]                    one grant for each scope, with its context and its constraint
//	   ▼
//	[Rights]                      rights.go
//	   │ [Rights.GrantsFor]       the grants for a type and a permission; 403 if there are none
//	   │ [Rights.IsUnrestricted]  grants cover all resources of the type: no further checks
//	   ▼
//	[Rights.Covers]               verdict.go: whether a grant covers a resource;
//	                              a document is covered if each of its entries is
//	                              rule.go: the rules by type, as one table
//	[TypeRules.Confine]           rule.go: searches that find the resources that a grant covers
//	[SideEffectOf]                rule.go: side effects of storing a resource of a type
//
// The context of one grant is never combined with the constraint of another.
//
// References: SMART App Launch 2.2.0, "Scopes for requesting FHIR Resources"; FHIR R4, CompartmentDefinition.
package access
