// Package remote sends requests to other servers for missing definitions: FHIR terminology servers over HTTP
// ([Server]), and the next handler ([Recorder], [Handler]). It stores nothing except full expansions.
//
//	ParsedRequest ──► Subject ──► Routes ──► FullExpansions ► Server.Do ──┐    server.go, routes.go, fullexpansions.go
//	                                  └────► next ► Recorder ─────────────┤    recorder.go; as a source of definitions: handler.go
//	                                                                      └► Response, validated, or an Error: answer.go, error.go
//
// # Responses
//
// A [Response] is complete, has a FHIR media type, can be parsed, and has the resource type that the operation returns.
// Alternatively it is an OperationOutcome with a status that indicates an invalid request ([Response.IsNegative]).
// Everything else is an [Error] and must not be stored.
//
// # Credentials
//
// A server gets its own credentials, never a user's. Redirects to another origin are not followed. Texts for clients
// ([Error.Diagnostics]) contain neither URLs nor text of a server; [Error.Error] contains the cause, for the log.
package remote
