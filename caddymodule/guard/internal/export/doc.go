// Package export begins exports of bulk data, for whole types, and answers for their jobs and files.
//
//	exports.go     the types that a system scope covers whole, and the parameters about them
//	export.go      the kick-off
//	job.go         the job, asked about by sealed links
//	exportfile.go  and its files, streamed
//
// References: Bulk Data Access IG 2.0.
package export
