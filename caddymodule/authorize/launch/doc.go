// Package launch determines the launch context of an app (SMART App Launch 2.2, "Scopes for requesting context data"): patient,
// encounter and other values from an EHR.
//
// A context has one of two sources. An EHR can register it before it opens the app, which sends its handle as the parameter
// launch. Otherwise, the context is derived from the signed-in person: it is the person's own patient record or a patient whom
// the person chooses.
//
//	context.go         [Context] and its references; [Launches]: single-use contexts registered by EHRs
//	patients.go        [Patients]: patients that a person may choose; [Encounter]; queries to the FHIR server with a person's rights
//	recentpatients.go  patients whom a person chose last
//	personsearch.go    [Searcher]: search for a person's own resource by claims of their identity provider
package launch
