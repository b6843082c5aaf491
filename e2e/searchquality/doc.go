// Command searchquality measures whether the filter of ValueSet/$expand finds what a clinician means: it asks lists of
// queries, for each of which it is known which codes are wanted, and says at which rank the first of these comes. From
// e2e:
//
//	go run ./searchquality searchquality/testdata/icd10cm-rules.tsv     every query, and the sums
//	go run ./searchquality -sums LIST                                   the sums alone: for a list that must stay unseen
//	go run ./searchquality -misses LIST                                 those whose answer is not among the first three
//	go run ./searchquality -terms LIST                                  with ICD-10-CM's inclusion terms as designations
//	go run ./searchquality -synonyms FILE LIST                          with synonyms, such as terminology/internal/synonyms/english.txt
//	go run ./searchquality -weights FILE LIST                           with how often codes are used
//
// A list names its terminology in a line "#! NAME":
//
//	icd10cm   ICD-10-CM of April 2026, which is in the public domain, out of a package of PyPI that has the tabular list
//	          of CDC's NCHS: pip download --no-deps -d searchquality/packages simple-icd-10-cm==1.5.0
//	snomed    26,158 terms of SNOMED CT, the Global Patient Set (CC BY 4.0), out of HL7's terminology:
//	          npm pack hl7.terminology.r4@7.0.1 --pack-destination node/packages
//	loinc     6,401 names of LOINC, those of FHIR's value set c80-doc-typecodes, which is built in
//
// Other lines that begin with # are comments. Each other line has four columns, with a tab between them: the query; the
// codes wanted, with spaces between them, where A00* is any code that begins so and can be chosen; the category, by
// which the sums are grouped; and the source, which the comments explain. A code that is not there is an error.
//
// Lists with -rules in their names may be used to make the rules of search, and its synonyms. Those with -shown were written
// separately, and only show how good it is: whoever changes search looks at their sums alone.
//
// The answer is the page of the first ten, as of a pick list. Where nothing wanted is on it, the rank is found in the
// whole answer; the mean of the reciprocal ranks counts such a query as 0.
//
//	main.go      the flags
//	list.go      reads a list
//	catalogue.go the terminologies: icd10cm.go makes a CodeSystem of the tabular list (tabular.go), snomed.go unpacks
//	searcher.go  asks
//	report.go    what is printed
//	ablation     a command: what each part of search gives
package main
