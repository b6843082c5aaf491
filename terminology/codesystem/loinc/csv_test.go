package loinc

import (
	"encoding/csv"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// TestRecordsMatchStandardLibrary compares the records of generated files with those of encoding/csv. The file is read byte by byte
// into a small buffer, so that the buffer ends everywhere.
func TestRecordsMatchStandardLibrary(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	pieces := []string{"a", "ü", `""`, ",", "\n", "é b", "", "longer text, with commas"}
	for range 2000 {
		var text strings.Builder
		columns := 1 + random.IntN(4)
		for range random.IntN(6) {
			for column := range columns {
				if column > 0 {
					text.WriteByte(',')
				}
				if random.IntN(4) == 0 {
					text.WriteString("plain")
					continue
				}
				text.WriteByte('"')
				for range random.IntN(4) {
					text.WriteString(pieces[random.IntN(len(pieces))])
				}
				text.WriteByte('"')
			}
			text.WriteString([]string{"\n", "\r\n", "\n\n"}[random.IntN(3)])
		}
		content := text.String()
		if random.IntN(2) == 0 {
			content = strings.TrimRight(content, "\r\n")
		}
		r := csv.NewReader(strings.NewReader(content))
		r.FieldsPerRecord = -1
		want, err := r.ReadAll()
		if err != nil {
			t.Fatalf("%q: %v", content, err)
		}
		want = slices.DeleteFunc(want, func(record []string) bool { return len(record) == 1 && record[0] == "" }) // like a blank line
		if got := recordsOf(t, content); !slices.EqualFunc(got, want, slices.Equal) {
			t.Fatalf("%q:\ngot  %q\nwant %q", content, got, want)
		}
	}
}

func recordsOf(t *testing.T, content string) (records [][]string) {
	t.Helper()
	f := &csvFile{file: io.NopCloser(iotest.OneByteReader(strings.NewReader(content))), buffer: make([]byte, 0, 2)}
	for {
		ok, err := f.readRecord()
		if err != nil {
			t.Fatalf("%q: %v", content, err)
		}
		if !ok {
			return records
		}
		var record []string
		for _, field := range f.fields {
			record = append(record, string(field))
		}
		records = append(records, record)
	}
}
