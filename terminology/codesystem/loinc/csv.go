package loinc

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/caddy-fhir/caddy-fhir/terminology/definitions"
)

// Limits on a file, so that a foreign or hostile file is rejected before it uses much memory.
const (
	maxRecord  = 1 << 20 // bytes
	maxColumns = 128
)

// csvFile reads a file of comma-separated values in UTF-8 (RFC 4180). The first record contains the column names. Columns are
// found by name, because publishers add and move columns.
type csvFile struct {
	name     string
	columns  []string
	required []string // columns to read
	at       []int    // their indexes; -1 for a missing optional column
	fields   [][]byte // fields of the current record, valid until the next one is read
	line     int      // line of the current record

	file    io.ReadCloser
	read    int // bytes read from file since the last record
	records *csv.Reader
	content []byte // memory of fields, with a comma after each
}

// openCSV opens a file and reads its header. A question mark follows the name of a column that may be missing.
func openCSV(r *definitions.Release, name string, columns []string) (*csvFile, error) {
	file, err := r.Open(name)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f := &csvFile{name: name, file: file}
	if err := f.readHeader(columns); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return f, nil
}

// byteOrderMark may be at the beginning of a file.
const byteOrderMark = "\ufeff"

func (f *csvFile) readHeader(columns []string) error {
	buffered := bufio.NewReaderSize(f, 1<<18)
	if start, _ := buffered.Peek(len(byteOrderMark)); string(start) == byteOrderMark {
		_, _ = buffered.Discard(len(byteOrderMark)) // cannot fail: the bytes are buffered
	}
	f.records = csv.NewReader(buffered)
	f.records.ReuseRecord, f.records.FieldsPerRecord = true, -1
	ok, err := f.readRecord()
	if err != nil || !ok {
		return f.errorf("no header: %w", errors.Join(err, io.ErrUnexpectedEOF))
	}
	for _, name := range f.fields {
		f.columns = append(f.columns, string(name))
	}
	for _, column := range columns {
		name := strings.TrimSuffix(column, "?")
		index := slices.IndexFunc(f.columns, func(other string) bool { return strings.EqualFold(name, other) })
		if index < 0 && name == column {
			return f.errorf("no column %s in the header", name)
		}
		f.required, f.at = append(f.required, name), append(f.at, index)
	}
	return nil
}

// Read reads the file for the CSV reader. It returns an error if a record is too long.
func (f *csvFile) Read(b []byte) (int, error) {
	if f.read > maxRecord {
		return 0, fmt.Errorf("longer than %d bytes", maxRecord)
	}
	n, err := f.file.Read(b)
	f.read += n
	return n, err
}

// value returns the value of the i-th column to read. It is nil if the column is missing.
func (f *csvFile) value(i int) []byte {
	if f.at[i] < 0 {
		return nil
	}
	return f.fields[f.at[i]]
}

// each calls visit for each record and closes the file.
func (f *csvFile) each(visit func() error) (err error) {
	defer func() { err = errors.Join(err, f.file.Close()) }()
	for {
		ok, err := f.readRecord()
		switch {
		case err != nil:
			return f.errorf("%w", err)
		case !ok:
			return nil
		case len(f.fields) != len(f.columns):
			return f.errorf("%d columns, but the header has %d", len(f.fields), len(f.columns))
		}
		if err := visit(); err != nil {
			return err
		}
	}
}

// errorf returns an error that names the file and line.
func (f *csvFile) errorf(format string, arguments ...any) error {
	return fmt.Errorf("%s line %d: %w", f.name, f.line, fmt.Errorf(format, arguments...))
}

// readRecord reads the next record and skips blank lines. ok is false at the end of the file.
func (f *csvFile) readRecord() (ok bool, err error) {
	record, err := f.records.Read()
	if err != nil {
		f.line++ // unless the last record has several lines
		if parse, ok := errors.AsType[*csv.ParseError](err); ok {
			f.line = parse.StartLine
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return false, err
	}
	f.line, _ = f.records.FieldPos(0)
	f.read = 0
	if len(record) > maxColumns {
		return false, fmt.Errorf("more than %d columns", maxColumns)
	}
	f.fields, f.content = f.fields[:0], f.content[:0]
	for _, field := range record {
		from, to := len(f.content), len(f.content)+len(field)
		f.content = append(append(f.content, field...), ',') // an invalid character must not continue in the next field
		f.fields = append(f.fields, f.content[from:to])
	}
	switch {
	case bytes.IndexByte(f.content, 0) >= 0:
		return false, errors.New("contains a NUL byte")
	case !utf8.Valid(f.content):
		return false, errors.New("not UTF-8")
	}
	return true, nil
}

// codeKey is a code as a number: the letters, the number and the check digit.
type codeKey uint64

// maxDigits is the maximum number of digits of a code besides the check digit, so that it is less than 1<<48 with it. Codes have
// at most 7.
const maxDigits = 13

// parseCode parses a code: digits, a hyphen and a check digit, with two letters before them unless it is a term.
func parseCode(code []byte) (key codeKey, ok bool) {
	digits := code
	for len(digits) > 0 && 'A' <= digits[0] && digits[0] <= 'Z' {
		key, digits = key<<8|codeKey(digits[0]), digits[1:]
	}
	n := len(digits) - 2
	if n < 1 || n > maxDigits || digits[n] != '-' || digits[0] == '0' || len(code) > len(digits)+2 {
		return 0, false
	}
	number := codeKey(0)
	for i, digit := range digits {
		switch {
		case i == n:
		case digit < '0' || digit > '9':
			return 0, false
		default:
			number = number*10 + codeKey(digit-'0')
		}
	}
	return key<<48 | number, true
}

// code returns the key of the code in the i-th column to read.
func (f *csvFile) code(i int) (codeKey, error) {
	key, ok := parseCode(f.value(i))
	if !ok {
		return 0, f.errorf("%s is not a LOINC code: %q", f.required[i], f.value(i)[:min(len(f.value(i)), 40)])
	}
	return key, nil
}
