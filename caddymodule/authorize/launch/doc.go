// Package launch knows what an app is launched with (SMART App Launch 2.2, "Scopes for
// requesting context data"): the patient, the encounter, and what else an EHR says.
//
// A context comes from one of two places. An EHR registers it before it opens the app, and
// the app hands its handle back as the parameter launch. Otherwise it is found from who has
// signed in: a patient's own record, or one that is picked.
//
//	context.go       [Context] and its references; [Launches]: contexts that an EHR registered, used once
//	patients.go      [Patients]: whose records a person may choose among; [Patients.Encounters]; asking the FHIR server with a person's own rights
//	personsearch.go  [Searcher]: which resource is a person's own, by what their identity provider says
package launch
