// Package export begins exports of bulk data, for whole types, and answers for their jobs and files.
//
//	exports.go           what exports need of others
//	export.go            the kick-off
//	exportparameters.go    about types that a system scope covers whole
//	job.go               the job, asked about by sealed links
//	exportfile.go        and its files, streamed
//
// References: Bulk Data Access IG 2.0.
package export
