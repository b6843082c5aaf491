// Package remote sends requests that need missing definitions to other servers: FHIR terminology servers over HTTP
// ([Server]), and the next handler ([Recorder], [Handler]). It stores nothing but full expansions.
//
//	ParsedRequest ──► Subject ──► Routes ──► FullExpansions ► Server.Do ──┐    server.go, routes.go, fullexpansions.go
//	                                  └────► next ► Recorder ─────────────┤    recorder.go; as a source of definitions: handler.go
//	                                                                      └► Response, validated, or an Error: answer.go, error.go
//
// # Responses
//
// A [Response] is complete, has a FHIR media type, can be parsed, and has the resource type that the operation returns.
// Alternatively, it is an OperationOutcome with a status that indicates an invalid request ([Response.IsNegative]).
// Any other response results in an [Error], which must not be stored.
//
// # Credentials
//
// Requests contain the credentials configured for the server, never a user's. Redirects to another origin are not
// followed. Texts for clients ([Error.Diagnostics]) contain neither URLs nor text from a server. [Error.Error] contains the
// cause and must only be logged.
package remote
