// Package remote asks other servers for what is missing here: FHIR terminology servers over HTTP ([Server]), and the next
// handler ([Recorder], [Handler]). Apart from value sets that it fetches whole, it stores nothing.
//
//	Question ──► Subject ──► Routes ──► Wholes ► Server.Ask ──┐    server.go, routes.go, wholes.go
//	                             └────► next ► Recorder ──────┤    recorder.go; as a source of definitions: handler.go
//	                                                          └► Answer, checked, or an Error that says what failed: answer.go, error.go
//
// # Answers
//
// An [Answer] is whole, says that it is FHIR, can be parsed, and holds the type of resource that the operation returns;
// or it is an OperationOutcome with a status that blames the request and not the server ([Answer.Negative]).
// Everything else is an [Error] and must not be stored.
//
// # Credentials
//
// A server gets its own credentials, never a user's. A redirect to another origin is not followed. Texts for clients
// ([Error.Diagnostics]) contain neither addresses nor what a server wrote; [Error.Error], for the log, has the cause.
package remote
