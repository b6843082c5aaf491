// Package remote asks other servers what the definitions here cannot answer: FHIR terminology servers over
// HTTP ([Server]), and the next handler of the server around it ([Recorder]). Which of them is asked,
// [Routes] decides. It caches nothing; what it returns may be cached.
//
//	operation ──► Subject ──► Routes ──► Server.Ask ─────┐
//	                             └────► next ► Recorder ─┤ checked: check.go
//	                                                     └► Answer, or an Error that says what failed
//
// # Answers
//
// An [Answer] is whole, says that it is FHIR, can be parsed, and holds the kind of resource that the
// operation returns; or else it is an OperationOutcome with one of the statuses that say that the question,
// and not the server, is at fault: [Answer.Negative]. Whatever is not so is an [Error], of which there is
// nothing to be kept: nobody is given a bad answer again.
//
// # Credentials
//
// A server is sent its own credentials and never those of the user. They stay with it: a redirect to
// another origin is not followed. Texts for clients ([Error.Diagnostics]) hold neither addresses nor what a
// server wrote; [Error.Error], which is for the log, has the cause.
package remote
