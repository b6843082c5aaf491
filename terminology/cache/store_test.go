package cache

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime"
	"testing"
	"time"
)

var slow = flag.Bool("slow", false, "ask ten times as often")

// testEntry returns an entry for test key n that stays fresh for an hour.
func testEntry(n uint64, body []byte) *entry {
	q := &target{key: testKey(n)}
	a := &Response{Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/fhir+json"}}, Body: body, Tags: []string{}}
	return newEntry(q, a, freshness{fresh: time.Hour, retention: time.Hour}, time.Now())
}

func testKey(n uint64) Key { return Key{sum: sha256.Sum256(binary.AppendUvarint(nil, n))} }

// wants looks up test key n, adds an entry if it is missing, and reports whether it was found.
func (s *store) wants(n uint64, size int) bool {
	if s.get(testKey(n), nil) != nil {
		return true
	}
	e := &entry{key: testKey(n), status: http.StatusOK, tags: []string{}, created: time.Now(), freshness: freshness{fresh: time.Hour, retention: time.Hour}}
	e.forms[identityCoding].Store(newForm(identityCoding, make([]byte, size), "tag")) // a fixed tag avoids hashing a million bodies
	s.add(e, s.currentGeneration(), e.created)
	return false
}

// TestScan checks that one-time keys neither increase memory nor evict popular entries. It mixes 100,000 of them (a million
// with the flag slow) with a realistic workload.
func TestScan(t *testing.T) {
	filters := uint64(100_000)
	if *slow {
		filters *= 10
	}
	t.Run("room for all that is honest", func(t *testing.T) { testScan(t, 16<<20, filters) })
	t.Run("room for a third of it", func(t *testing.T) { testScan(t, 2500<<10, filters/5) })
}

// testScan requests four one-time keys after each realistic request.
func testScan(t *testing.T, limit int64, filters uint64) {
	const honest, body = 2000, 2 << 10
	s := newStore(limit)
	random := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(random, 1.1, 1, honest-1)
	mix := func(scan bool) (rate float64) {
		n, hits := filters/4, 0
		for i := range n {
			if s.wants(zipf.Uint64(), body) {
				hits++
			}
			if scan {
				for j := range uint64(4) {
					s.wants(honest+4*i+j, body)
				}
			}
		}
		return float64(hits) / float64(n)
	}
	before := heap()
	mix(false)
	alone := mix(false)
	scanned := mix(true)
	growth := heap() - before
	t.Logf("hit rate %.1f %% alone, %.1f %% in a scan; %d entries of %d bytes, heap %d", 100*alone, 100*scanned, len(s.entries), s.bytes(), growth)
	if scanned < alone-0.05 {
		t.Errorf("the hit rate falls from %.3f to %.3f", alone, scanned)
	}
	if growth > limit+64<<20 {
		t.Errorf("the heap grew by %d", growth)
	}
	if err := s.check(); err != nil {
		t.Error(err)
	}
}

// heap returns the heap memory in use, in bytes.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestSizes compares the computed sizes of entries with the memory that the runtime reports.
func TestSizes(t *testing.T) {
	const limit = 32 << 20
	for name, test := range map[string]struct {
		body, tags int
		aliases    bool
	}{
		"tiny":      {10, 0, false},
		"usual":     {2000, 0, true},
		"many tags": {2000, 30, true},
		"large":     {200_000, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			before := heap()
			s := newStore(limit)
			for n := uint64(0); s.bytes() < limit/2; n++ {
				e := testEntry(n, make([]byte, test.body))
				e.headers = append(e.headers, field{"Content-Location", []string{fmt.Sprint("/ValueSet/", n)}})
				for i := range test.tags {
					e.tags = append(e.tags, fmt.Sprint("http://example.org/ValueSet/", n, "/", i))
				}
				s.add(e, s.currentGeneration(), time.Now())
				if test.aliases {
					s.get(e.key, fmt.Append(bytes.Repeat([]byte("x"), 200), n))
				}
				e.ageHeadersAt(time.Second)
			}
			estimated, actual := s.bytes(), heap()-before
			t.Logf("%d entries: estimated %d, actual %d", len(s.entries), estimated, actual)
			if actual > estimated*11/10+1<<20 || actual < estimated/2 {
				t.Errorf("estimated %d, actual %d", estimated, actual)
			}
			runtime.KeepAlive(s)
		})
	}
}

// TestStoreProperties performs random operations and checks that the data structures remain consistent.
func TestStoreProperties(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	s := newStore(200 << 10)
	for i := range 20_000 {
		n := random.Uint64N(300)
		key := testKey(n)
		switch random.IntN(11) {
		case 0:
			if e := s.entries[key.sum]; e != nil {
				f := newForm(gzipCoding, make([]byte, random.IntN(5000)), "")
				if e.forms[gzipCoding].CompareAndSwap(nil, f) {
					s.grow(e, int64(f.cost()))
				}
			}
		case 1:
			s.invalidate(func(s *store) []*entry { return s.dependentEntries(fmt.Sprint(n%10), "") })
		case 2:
			if e := s.entries[key.sum]; e != nil {
				s.discard(e)
			}
		case 3, 4, 5, 6:
			e := testEntry(n, make([]byte, random.IntN(8000)))
			e.tags = []string{fmt.Sprint(n % 10)}
			e.retention = time.Duration(random.IntN(3)) * time.Hour // 0 means already expired
			s.add(e, s.currentGeneration(), time.Now())
		default:
			raw := fmt.Append(nil, n, random.IntN(20))
			if e := s.find(raw); e != nil && e.key != key {
				t.Fatalf("%q finds %v", raw, e.key)
			}
			s.get(key, raw)
		}
		if err := s.check(); err != nil {
			t.Fatalf("after %d steps: %v", i, err)
		}
	}
	if s.rejected == 0 || s.evicted == 0 {
		t.Error("the bound was never met")
	}
}

// TestGrowthEvicts checks that forms added to an entry later count toward the size limit.
func TestGrowthEvicts(t *testing.T) {
	s := newStore(100 << 10)
	for n := range uint64(40) {
		s.wants(n, 1000)
		s.wants(n, 1000)
	}
	e := s.get(testKey(0), nil)
	f := newForm(gzipCoding, make([]byte, 60<<10), "")
	e.forms[gzipCoding].Store(f)
	s.grow(e, int64(f.cost()))
	if err := s.check(); err != nil || s.evicted == 0 {
		t.Errorf("%v, %d evicted", err, s.evicted)
	}
}

// TestReplacementStaysPopular checks that the replacement for a popular entry inherits its segment and aliases.
func TestReplacementStaysPopular(t *testing.T) {
	s := newStore(1 << 20)
	for n := range uint64(20) {
		s.wants(n, 1000)
	}
	s.get(testKey(1), []byte("raw"))
	e := testEntry(1, []byte("new"))
	s.add(e, s.currentGeneration(), time.Now())
	if s.find([]byte("raw")) != e || e.position.segment != segmentProtected {
		t.Errorf("in segment %d, found %v", e.position.segment, s.find([]byte("raw")))
	}
}

func TestTooLarge(t *testing.T) {
	s := newStore(1 << 20)
	s.wants(1, 1000)
	if s.wants(2, 300<<10); len(s.entries) != 1 || s.rejected != 1 {
		t.Errorf("%d entries, %d rejected", len(s.entries), s.rejected)
	}
	s.add(testEntry(1, make([]byte, 300<<10)), s.currentGeneration(), time.Now())
	if len(s.entries) != 0 {
		t.Error("the old answer is still there")
	}
}

func TestExpired(t *testing.T) {
	s := newStore(10 << 20)
	for n := range uint64(100) {
		e := testEntry(n, []byte("x"))
		e.retention = 0
		s.add(e, s.currentGeneration(), time.Now())
	}
	for n := range uint64(200) {
		s.add(testEntry(1000+n, []byte("x")), s.currentGeneration(), time.Now())
	}
	remaining := 0
	for _, e := range s.entries {
		if e.retention == 0 {
			remaining++
		}
	}
	if remaining > 60 {
		t.Errorf("%d of 100 useless entries remain", remaining)
	}
}

func TestSketch(t *testing.T) {
	s := newSketch(1 << 12)
	random := rand.New(rand.NewPCG(5, 6))
	often := random.Uint64()
	for range 8 {
		s.add(often)
	}
	wrong := 0
	for range 10_000 {
		n := random.Uint64()
		s.add(n)
		if s.estimate(n) > 2 {
			wrong++
		}
	}
	if n := s.estimate(often); n < 8 {
		t.Errorf("requested 8 times, estimated as %d", n)
	}
	if wrong > 100 {
		t.Errorf("%d of 10,000 that were requested once count as popular", wrong)
	}
	once := random.Uint64()
	s.add(once)
	s.age()
	if n := s.estimate(once); n != 0 {
		t.Errorf("requested once, long ago: %d", n)
	}
	if n := s.estimate(often); n > 5 || n < 3 {
		t.Errorf("after ageing: %d", n)
	}
}

// TestAliases checks that the number of aliases per entry is limited.
func TestAliases(t *testing.T) {
	s := newStore(1 << 20)
	s.wants(1, 100)
	before := s.bytes()
	for i := range 3 * maxAliases {
		s.get(testKey(1), fmt.Append(nil, "way ", i))
	}
	s.get(testKey(1), make([]byte, maxAliasSize+1))
	for i := range 3 * maxAliases {
		if found := s.find(fmt.Append(nil, "way ", i)) != nil; found != (i >= 2*maxAliases) {
			t.Errorf("way %d: found = %v", i, found)
		}
	}
	if err := s.check(); err != nil || len(s.aliases) != maxAliases || s.bytes() <= before {
		t.Errorf("%v, %d ways, %d bytes", err, len(s.aliases), s.bytes())
	}
}

// TestEvictionByPopularity checks that entries are evicted in favor of more popular ones even if they were reused.
func TestEvictionByPopularity(t *testing.T) {
	s := newStore(100 << 10)
	for range 2 {
		for n := range uint64(100) {
			s.wants(n, 4000)
		}
	}
	for _, e := range s.entries {
		s.touch(e)
	}
	for range 20 {
		for n := range uint64(2) {
			s.wants(1000+n, 23_000)
		}
	}
	for n := range uint64(2) {
		if s.entries[testKey(1000+n).sum] == nil {
			t.Errorf("%d is not stored despite repeated requests", n)
		}
	}
	if err := s.check(); err != nil || s.evicted == 0 {
		t.Errorf("%v, %d evicted", err, s.evicted)
	}
}

// TestAliasesCount checks that aliases count toward the size limit.
func TestAliasesCount(t *testing.T) {
	s := newStore(100 << 10)
	for n := range uint64(100) {
		s.wants(n, 2000)
	}
	for n := range uint64(100) {
		s.get(testKey(n), fmt.Append(make([]byte, 1000), n))
		if err := s.check(); err != nil {
			t.Fatal(err)
		}
	}
}
