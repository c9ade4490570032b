/* The two transforms around the products of a convolution by Winograd's method; see winograd.py.

   Both go through the tiles of an image (n, h, w, c): tiles of s x s pixels, one every m pixels from `first` on, each
   turned on both sides by p (a x s). What lies outside of the image is 0. c must be a multiple of 8. */

typedef float v8 __attribute__((vector_size(32), aligned(4)));

#define MOST 6

typedef struct {
    int n, h, w, c, m, first, a, s;
} Tiling;

static int count(int side, int m) { return (side + m - 1) / m; }

/* Image to v (a * a, tiles, c). */
static inline __attribute__((always_inline)) void gather_of(const float *x, float *v, const float *p, Tiling t)
{
    int high = count(t.h, t.m), wide = count(t.w, t.m);
    long tiles = (long)t.n * high * wide, tile = 0;
    for (int row = 0; row < t.n; row++)
        for (int y = t.first; y < high * t.m + t.first; y += t.m)
            for (int z = t.first; z < wide * t.m + t.first; z += t.m, tile++)
                for (int k = 0; k < t.c; k += 8) {
                    v8 in[MOST][MOST], half[MOST][MOST];
                    for (int i = 0; i < t.s; i++)
                        for (int j = 0; j < t.s; j++) {
                            int inside = y + i >= 0 && y + i < t.h && z + j >= 0 && z + j < t.w;
                            const float *pixel = x + (((long)row * t.h + y + i) * t.w + z + j) * t.c + k;
                            in[i][j] = inside ? *(const v8 *)pixel : (v8){0};
                        }
                    for (int i = 0; i < t.a; i++)
                        for (int j = 0; j < t.s; j++) {
                            half[i][j] = p[i * t.s] * in[0][j];
                            for (int l = 1; l < t.s; l++) half[i][j] += p[i * t.s + l] * in[l][j];
                        }
                    for (int i = 0; i < t.a; i++)
                        for (int j = 0; j < t.a; j++) {
                            v8 sum = p[j * t.s] * half[i][0];
                            for (int l = 1; l < t.s; l++) sum += p[j * t.s + l] * half[i][l];
                            *(v8 *)(v + ((i * t.a + j) * tiles + tile) * t.c + k) = sum;
                        }
                }
}

/* The adjoint: v (a * a, tiles, c) is added to an image, tiles that overlap one after the other. */
static inline __attribute__((always_inline)) void scatter_of(const float *v, float *x, const float *p, Tiling t)
{
    int high = count(t.h, t.m), wide = count(t.w, t.m);
    long tiles = (long)t.n * high * wide, tile = 0;
    for (int row = 0; row < t.n; row++)
        for (int y = t.first; y < high * t.m + t.first; y += t.m)
            for (int z = t.first; z < wide * t.m + t.first; z += t.m, tile++)
                for (int k = 0; k < t.c; k += 8) {
                    v8 in[MOST][MOST], half[MOST][MOST];
                    for (int i = 0; i < t.a; i++)
                        for (int j = 0; j < t.a; j++)
                            in[i][j] = *(const v8 *)(v + ((i * t.a + j) * tiles + tile) * t.c + k);
                    for (int i = 0; i < t.s; i++)
                        for (int j = 0; j < t.a; j++) {
                            half[i][j] = p[i] * in[0][j];
                            for (int l = 1; l < t.a; l++) half[i][j] += p[l * t.s + i] * in[l][j];
                        }
                    for (int i = 0; i < t.s; i++)
                        for (int j = 0; j < t.s; j++) {
                            if (y + i < 0 || y + i >= t.h || z + j < 0 || z + j >= t.w) continue;
                            v8 sum = p[j] * half[i][0];
                            for (int l = 1; l < t.a; l++) sum += p[l * t.s + j] * half[i][l];
                            *(v8 *)(x + (((long)row * t.h + y + i) * t.w + z + j) * t.c + k) += sum;
                        }
                }
}

/* Loops over a and s are unrolled where the compiler knows them. */
#define FOR(A, S, of) \
    if (t.a == A && t.s == S) { \
        t.a = A, t.s = S; \
        of(from, to, p, t); \
    }
#define FOR_EACH(of) FOR(6, 6, of) FOR(6, 4, of) FOR(5, 5, of) FOR(5, 3, of)

void gather(const float *from, float *to, const float *p, Tiling t) { FOR_EACH(gather_of) }
void scatter(const float *from, float *to, const float *p, Tiling t) { FOR_EACH(scatter_of) }
