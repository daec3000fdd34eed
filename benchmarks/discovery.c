/* Discovery of one network on one core; the layout of both structs is repeated in discovery_c.py. */
#include <float.h>
#include <math.h>
#include <string.h>

typedef struct {
    int num_states, num_devices, num_classes, num_clusters, num_episodes, record_every, min_classes;
    float stay_probability, initial_value, temperature, alpha_diversity, alpha_outage, alpha_budget, gamma;
    const float *outage, *counts, *thresholds, *needed, *budget;
    const int *cluster;
    const unsigned char *trust;
} Problem;

typedef struct {
    int *links, *greedy;
    float *reward, *tries, *history;
} Found;

enum { REWARD, DIVERSE_SHARE, NUM_CLASSES, OUTAGE, REQUESTED_INTER, OVER_BUDGET, ENTROPY, NUM_CURVES };

/* Weights of eq. 7 of one device, not yet divided by their sum, which is returned. */
static float weigh(const Problem *p, const float *restrict reward, const float *restrict tries,
                   float *restrict weight) {
    float most = -FLT_MAX, sum = 0;
    for (int j = 0; j < p->num_devices; j++) {
        float value = tries[j] > 0 ? reward[j] / tries[j] : p->initial_value;
        weight[j] = value / p->temperature;
        most = weight[j] > most ? weight[j] : most;
    }
    for (int j = 0; j < p->num_devices; j++) weight[j] = expf(weight[j] - most);
    for (int j = 0; j < p->num_devices; j++) sum += weight[j];
    return sum;
}

static void draw(const Problem *p, const Found *f, int state, const float *uniform, int *restrict links) {
    int n = p->num_devices;
    float weight[n];
    for (int i = 0; i < n; i++) {
        size_t row = ((size_t)state * n + i) * n;
        float point = uniform[i] * weigh(p, f->reward + row, f->tries + row, weight), sum = weight[0];
        int j = 0;
        while (j < n - 1 && sum <= point) sum += weight[++j];
        links[i] = j;
    }
}

/* Algorithm 1: requested points by device, and counts afterwards. */
static void exchange(const Problem *p, const float *outage, const int *restrict links, float *restrict asked,
                     float *restrict after) {
    int n = p->num_devices, m = p->num_classes;
    float requested[n * m], demand[n * m];
    memset(demand, 0, sizeof demand);
    memset(requested, 0, sizeof requested);
    memcpy(after, p->counts, sizeof requested);
    for (int i = 0; i < n; i++) {
        int j = links[i];
        const float *have = p->counts + j * m, *keep = p->thresholds + j * m;
        const float *own = p->counts + i * m, *want = p->thresholds + i * m;
        const unsigned char *trust = p->trust + ((size_t)j * n + i) * m;
        asked[i] = 0;
        if (i == j) continue;
        for (int l = 0; l < m; l++) {
            float offer = trust[l] ? fmaxf(have[l] - keep[l], 0) : 0;
            float request = fmaxf(fminf(offer, want[l] - own[l]), 0);
            requested[i * m + l] = request;
            demand[j * m + l] += request;
            asked[i] += request;
        }
    }
    for (int i = 0; i < n; i++) {
        int j = links[i];
        if (i == j) continue;
        float arrives = 1 - outage[i * n + j];
        for (int l = 0; l < m; l++) {
            float spare = fmaxf(p->counts[j * m + l] - p->thresholds[j * m + l], 0), asks = demand[j * m + l];
            float received = arrives * requested[i * m + l] * (asks > spare ? spare / asks : 1);
            after[i * m + l] += received;
            after[j * m + l] -= received;
        }
    }
}

/* Rewards of section III-C, added to the buffer, and the episode's sums for the history. */
static void earn(const Problem *p, const Found *f, int state, const int *restrict links, const float *asked,
                 const float *restrict after, double *restrict curves) {
    int n = p->num_devices, m = p->num_classes, num_linked = 0, num_diverse = 0, num_reached = 0;
    float local[n], inter[n], mean = 0, lost = 0, all = 0, over = 0, between = 0;
    const float *outage = p->outage + (size_t)state * n * n;
    memset(inter, 0, sizeof inter);
    for (int i = 0; i < n; i++) {
        int reached = 0, j = links[i];
        for (int l = 0; l < m; l++) reached += after[i * m + l] >= p->needed[i * m + l];
        int score = reached >= p->min_classes ? reached : 0;
        local[i] = p->alpha_diversity * score - p->alpha_outage * outage[i * n + j];
        mean += local[i] / n;
        if (p->cluster[i] != p->cluster[j]) inter[p->cluster[i]] += asked[i];
        num_linked += i != j;
        num_diverse += reached >= p->min_classes;
        num_reached += reached;
        lost += outage[i * n + j];
    }
    for (int i = 0; i < n; i++) {
        int k = p->cluster[i];
        float total = local[i] + p->gamma * (mean + p->alpha_budget * (p->budget[k] - inter[k]));
        size_t place = ((size_t)state * n + i) * n + links[i];
        f->reward[place] += total;
        f->tries[place] += 1;
        all += total;
    }
    for (int k = 0; k < p->num_clusters; k++) {
        between += inter[k];
        over += fmaxf(inter[k] - p->budget[k], 0);
    }
    curves[REWARD] += all / n;
    curves[DIVERSE_SHARE] += (double)num_diverse / n;
    curves[NUM_CLASSES] += (double)num_reached / n;
    curves[OUTAGE] += lost / (num_linked > 0 ? num_linked : 1);
    curves[REQUESTED_INTER] += between / p->num_clusters;
    curves[OVER_BUDGET] += over / p->num_clusters;
}

/* Mean entropy of the policies in one state, nats. */
static float entropy(const Problem *p, const Found *f, int state) {
    int n = p->num_devices;
    float weight[n], total = 0;
    for (int i = 0; i < n; i++) {
        size_t row = ((size_t)state * n + i) * n;
        float sum = weigh(p, f->reward + row, f->tries + row, weight);
        for (int j = 0; j < n; j++) total -= weight[j] > 0 ? weight[j] / sum * logf(weight[j] / sum) : 0;
    }
    return total / n;
}

static void choose(const Problem *p, const Found *f) {
    int n = p->num_devices;
    for (int row = 0; row < p->num_states * n; row++) {
        const float *reward = f->reward + (size_t)row * n, *tries = f->tries + (size_t)row * n;
        int best = -1;
        for (int j = 0; j < n; j++)
            if (tries[j] > 0 && (best < 0 || reward[j] / tries[j] > reward[best] / tries[best])) best = j;
        f->greedy[row] = best < 0 ? row % n : best;
    }
}

/* All episodes of section III; `uniform` [E, 2 + N] moves the channel and draws the links. */
void discover(const Problem *p, const float *uniform, const Found *f) {
    int n = p->num_devices, state = 0;
    float asked[n], after[n * p->num_classes];
    double curves[NUM_CURVES] = {0};
    for (int episode = 0; episode < p->num_episodes; episode++, uniform += 2 + n) {
        int *links = f->links + (size_t)episode * n;
        if (episode == 0 || uniform[0] >= p->stay_probability) state = (int)(uniform[1] * p->num_states);
        if (state >= p->num_states) state = p->num_states - 1;
        draw(p, f, state, uniform + 2, links);
        exchange(p, p->outage + (size_t)state * n * n, links, asked, after);
        earn(p, f, state, links, asked, after, curves);
        if ((episode + 1) % p->record_every) continue;
        float *row = f->history + (size_t)(episode / p->record_every) * NUM_CURVES;
        for (int curve = 0; curve < ENTROPY; curve++) row[curve] = (float)(curves[curve] / p->record_every);
        row[ENTROPY] = entropy(p, f, state);
        memset(curves, 0, sizeof curves);
    }
    choose(p, f);
}
