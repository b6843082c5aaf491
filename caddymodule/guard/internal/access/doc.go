// Package access says what a token may do: it turns scopes into grants, and knows which grants cover an interaction
// with a resource. It asks nobody and writes nothing.
//
//	the token's scopes, patient and fhirUser
//	   │ [New]                 one grant for each scope, with its context and its constraint
//	   ▼
//	[Rights]                   rights.go
//	   │ [Rights.For]          the grants for a type and a permission. None: 403
//	   │ [Rights.Whole]        one of them is about all resources of the type: nothing more to judge
//	   ▼
//	[Rights.Covers]            verdict.go: is this resource among those that the grant is about?
//	                           A document is, if each of its entries is
//	                           rule.go: the rules, as one table: what each says to all that is asked
//	[Shared.Confine]           rule.go: searches that find what a grant is about
//	[EffectOf]                 rule.go: what a server may do because a resource of the type is stored
//
// Grants are never mixed: what one allows in its context, under its constraint, is allowed; the context of one with
// the constraint of another is nobody's.
//
// References: SMART App Launch 2.2.0, "Scopes for requesting FHIR Resources"; FHIR R4, CompartmentDefinition.
package access
